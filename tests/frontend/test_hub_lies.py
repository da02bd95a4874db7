"""A hub, or what stands in its place, that answers with what isn't so: nothing is written where it doesn't belong,
nothing false is loaded, no disk is filled, and what was downloaded before runs."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.hub import hub_with_empty_cache

from penstock.frontend.models.model_files import find_tokenizer
from penstock.protocol.errors import ModelNotFoundError, PenstockError

LARGE = "large.json"  # as large as files that the hub redirects to another host, and has a SHA-256 of
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", LARGE: bytes(range(256)) * 1000}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with hub_with_empty_cache(tmp_path / "hub", monkeypatch) as running:
        running.put("owner/tiny", files=FILES)
        yield running


@pytest.fixture
def folder(tmp_path) -> Path:
    """It has the cache in it, and nothing else; all cases of a test have one."""
    return tmp_path


def empty_cache(folder: Path) -> None:
    shutil.rmtree(folder / "hub", ignore_errors=True)


def fetched() -> Path:
    """All but weights, which come in the same way."""
    return find_tokenizer("owner/tiny")


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def listing(change):
    """Another list of files than there is."""

    def told(request, answer):
        if "/api/models/" not in request.path:
            return answer
        changed = change(json.loads(answer.body))
        return answer._replace(body=changed if isinstance(changed, bytes) else json.dumps(changed).encode())

    return told


def with_files(**values):
    """Every file is described otherwise."""
    return listing(lambda said: {**said, "siblings": [{**each, **values, "lfs": None} for each in said["siblings"]]})


NO_LISTS = {
    "a login page": listing(lambda said: b"<html>Welcome to the hotel</html>"),
    "a list": listing(lambda said: [1]),
    "a name that is none": with_files(rfilename=None),
    "a size below nothing": with_files(size=-5),
    "a size in words": with_files(size="many"),
    "a content of another folder": with_files(blobId="../../../../escaped"),
    "a content with NUL": with_files(blobId="a\0b"),
    "a commit of another folder": listing(lambda said: {**said, "sha": "../../../../escaped"}),
    "no commit": listing(lambda said: {**said, "sha": None}),
}


@for_each("name", NO_LISTS)
def test_what_is_no_list_of_files_is_a_sentence_and_what_is_cached_runs(hub, folder, name):
    empty_cache(folder)
    before = files_in(folder)
    hub.told = NO_LISTS[name]
    with pytest.raises(ModelNotFoundError, match=r"answers, and not as a hub does: .*login page.*HF_ENDPOINT"):
        fetched()
    assert files_in(folder) == before
    hub.told = lambda request, answer: answer
    found = fetched()
    hub.told = NO_LISTS[name]
    assert fetched() == found


def test_names_that_are_no_names_of_files_are_passed_over(hub):
    odd = ("../../a.json", "..\\..\\a.json", "/etc/a.json", "a\n.json", "a\0.json", "a" * 300 + ".json", "a/../b.json")
    more = [{"rfilename": name, "size": 3, "blobId": "a" * 40} for name in odd]
    hub.told = listing(lambda said: {**said, "siblings": said["siblings"] + more})
    assert (fetched() / LARGE).is_file()


def content(change, name=LARGE):
    """Another content, or other headers, than the file has."""
    return lambda request, answer: (
        change(answer) if request.path.endswith(name) and answer.status in (200, 206) else answer
    )


def etag(value):
    """Files have names of that kind, which only they tell: the list has the right ones."""
    tags = {"ETag": f'"{value}"', "X-Linked-Etag": f'"{value}"'}
    return lambda request, answer: answer._replace(headers=answer.headers | tags)


@for_each("name", ["../../../../escaped", "/tmp/../escaped", "..", "a/b", "a" * 400])
def test_no_file_is_written_outside_of_the_cache(hub, folder, name):
    empty_cache(folder)
    hub.told = etag(name)
    with pytest.raises(PenstockError, match="broke off: .* not as a hub does: it names a content by"):
        fetched()
    assert not files_in(folder / "hub")
    assert not list(folder.rglob("*escaped*"))


@for_each("is_partial", [False, True])
def test_more_than_a_file_has_is_not_written(hub, folder, is_partial):
    """Such as the whole file in answer to each part that is asked for: it would be added to what is there forever."""
    empty_cache(folder)
    status = 206 if is_partial else 200
    hub.told = content(lambda answer: answer._replace(status=status, body=FILES[LARGE] + b"x" * 1000))
    with pytest.raises(PenstockError, match="came more than the 256,000 bytes that it has; it was removed"):
        fetched()
    assert not [path for path in files_in(folder / "hub") if path.stat().st_size > 200_000]


def test_another_content_of_the_same_size_or_a_login_page_in_the_place_of_a_file_is_not_kept(hub):
    page = b"<html>Welcome</html>"
    hub.told = content(lambda answer: answer._replace(headers={"ETag": '"a"'}, body=page), "config.json")
    with pytest.raises(PenstockError, match="does not seem to be served by a Hugging Face Hub"):
        fetched()
    hub.told = content(lambda answer: answer._replace(body=answer.body[:-5] + b"wrong"))
    with pytest.raises(PenstockError, match="has another SHA-256 than the hub's; it was removed"):
        fetched()
    hub.told = lambda request, answer: answer
    found = fetched()
    assert {name: (found / name).read_bytes() for name in FILES} == FILES


def test_a_compressed_answer_is_taken_for_what_it_says(hub):
    hub.told = lambda request, answer: (
        answer._replace(headers=answer.headers | {"Content-Encoding": "gzip"}, body=gzip.compress(answer.body))
        if answer.status == 200 and request.method == "GET"
        else answer
    )
    found = fetched()
    assert {name: (found / name).read_bytes() for name in FILES} == FILES


def test_a_broken_link_to_a_content_is_made_anew(hub):
    (fetched() / LARGE).resolve().unlink()
    assert (fetched() / LARGE).read_bytes() == FILES[LARGE]
