"""A hub, or what stands in its place, that answers with what isn't so: nothing is written where it doesn't belong,
nothing false is loaded, no disk is filled, and what was downloaded before runs."""

import itertools
import json
import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.hub import Answer, Request, hub_with_empty_cache
from builders.wrong_answers import wrong_answers
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.frontend.models.hub import download, repository, transfer
from penstock.frontend.models.hub.snapshot import FileKinds, snapshot
from penstock.frontend.models.model_files import find_tokenizer
from penstock.frontend.models.model_names import HubName
from penstock.protocol.errors import ModelNotFoundError, PenstockError

LARGE = "large.json"  # as large as files that the hub redirects to another host, and has a SHA-256 of
FILES = {"config.json": b"{}", "tokenizer.json": b"{ }", LARGE: bytes(range(256)) * 1000}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "_PAUSE_SECONDS", 0.0)
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


def pulled() -> Path:
    """Likewise, and what is there is checked."""
    return snapshot(HubName("owner/tiny"), FileKinds(weights=False), is_checked=True)


def require_whole(found: Path) -> None:
    assert {name: (found / name).read_bytes() for name in FILES} == FILES


def hub_as_it_is(request: Request, answer: Answer) -> Answer:
    return answer


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
    hub.told = NO_LISTS[name]
    with pytest.raises(ModelNotFoundError, match=r"answers, and not as a hub does: .*login page.*HF_ENDPOINT"):
        fetched()
    assert not any(path.is_file() for path in folder.rglob("*"))
    hub.told = hub_as_it_is
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
    return lambda request, answer: change(answer) if request.path.endswith(name) and answer.status < 300 else answer


@for_each("tag", ["", "../../../../escaped", "..", "a/b", "a" * 400, "ABCDEF" * 11, None])
def test_headers_name_no_content(hub, folder, tag):
    empty_cache(folder)
    tags = {} if tag is None else {"ETag": f'"{tag}"', "X-Linked-Etag": f'"{tag}"', "X-Linked-Size": "9" * 12}
    hub.told = lambda request, answer: answer._replace(headers={"Location": answer.headers.get("Location", "")} | tags)
    require_whole(fetched())
    assert not list(folder.rglob("*escaped*"))


@for_each("name, body, sentence", [
    (LARGE, FILES[LARGE] + b"x" * 1000, "came more than the 256,000 bytes that it has"),
    (LARGE, FILES[LARGE][:-5] + b"wrong", "has another SHA-256 than the hub lists"),
    (LARGE, b"<html>Welcome</html>", "sends 20 bytes for large.json, and lists 256,000"),
    (LARGE, b"", "sends 0 bytes for large.json, and lists 256,000"),
    ("config.json", b"[]", "download of config.json has another digest than the hub lists"),  # as git makes it
])  # fmt: skip
def test_what_the_hub_does_not_list_is_removed_and_fetched_anew(hub, folder, name, body, sentence):
    empty_cache(folder)
    hub.told = content(lambda answer: answer._replace(body=body), name)
    with pytest.raises(PenstockError, match=f"{sentence}; it was removed. The same call fetches it again"):
        fetched()
    hub.told = hub_as_it_is
    require_whole(fetched())


def test_a_digest_in_capitals_is_the_same_and_without_one_nothing_is_taken(hub):
    hub.told = with_files(blobId=None)
    with pytest.raises(PenstockError, match="without the size and the digest"):
        fetched()
    hub.status_of_files = 401  # files that one may not read are listed so
    with pytest.raises(PenstockError, match="the token is not valid"):
        fetched()
    hub.status_of_files = 0
    digests = re.compile(r'(?<=blobId": ")\w+|(?<=sha256": ")\w+')
    hub.told = listing(lambda said: digests.sub(lambda found: found[0].upper(), json.dumps(said)).encode())
    require_whole(fetched())


@pytest.mark.parametrize("takes_parts", [True, False])
def test_a_file_that_is_longer_than_any_answer_comes_in_parts(hub, monkeypatch, takes_parts):
    monkeypatch.setattr(transfer, "_MOST_BYTES", 100_000)
    if not takes_parts:
        hub.told = content(lambda answer: answer._replace(status=200, body=FILES[LARGE]))
    require_whole(fetched())
    assert hub.ranges(LARGE) == ["bytes=0-99999", "bytes=100000-199999", "bytes=200000-"][: 3 if takes_parts else 1]


def in_the_way(path: Path, kind: str, folder: Path) -> None:
    """Something that is no file of the cache's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(folder / "mine")
        case "second name":
            path.hardlink_to(folder / "mine")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                os.chdir(path.parent)  # a socket's path is short
                made.bind(path.name)
        case "longer":
            path.write_bytes(b"x" * 300_000)
        case "folder":
            path.mkdir()


@for_each("kind", ["pipe", "link", "second name", "socket", "longer", "folder"])
@for_each("where", ["blob", "unfinished", "name"])
def test_what_lies_in_a_files_place_is_neither_waited_for_nor_written_to(hub, folder, monkeypatch, kind, where):
    monkeypatch.chdir(folder)
    empty_cache(folder)
    repository = hub.find("owner/tiny", "main")
    (folder / "mine").write_bytes(b"mine")
    root = folder / "hub/models--owner--tiny"
    blob = root / "blobs" / repository.etag(LARGE)
    name = root / "snapshots" / repository.commit / LARGE
    places = {"blob": blob, "unfinished": blob.with_name(f"{blob.name}.incomplete"), "name": name}
    in_the_way(places[where], kind, folder)
    if kind == "folder":
        with pytest.raises(PenstockError, match="directory"):
            pulled()
    else:
        require_whole(pulled())
    assert (folder / "mine").read_bytes() == b"mine"


def test_a_hub_that_ignores_ranges_and_breaks_at_the_same_byte_ends_with_how_far_it_came(hub):
    hub.told = content(lambda answer: answer._replace(status=200, headers={}, body=FILES[LARGE], cut=100_000))
    with pytest.raises(PenstockError, match="100,000 of the 256,000 bytes .* arrived, and 5 more attempts brought"):
        fetched()
    hub.told = hub_as_it_is
    require_whole(fetched())
    assert hub.ranges(LARGE) == [None, *["bytes=100000-"] * 6], "what came was kept"


def test_a_hub_that_breaks_off_again_and_again_is_gone_on_with_while_it_brings_more(hub):
    cuts = itertools.cycle([0, 20_000])
    hub.told = content(lambda answer: answer._replace(cut=next(cuts)))
    require_whole(fetched())


def test_a_pull_in_which_nothing_happens_ends(hub, monkeypatch):
    hub.stops_at[LARGE] = 1000
    monkeypatch.setattr(download, "_STALLED_SECONDS", 0.0)
    with pytest.raises(PenstockError, match="broke off: next to nothing has arrived"):
        fetched()
    hub.stops_at[""] = 10  # the list
    monkeypatch.setattr(repository, "_MOST_SECONDS", 0.5)
    with pytest.raises(ModelNotFoundError, match="its list of files did not arrive within"):
        fetched()


def test_with_whatever_hub_a_pull_ends_and_a_file_is_whole_or_not_there(hub, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    digest = hub.find("owner/tiny", "main").etag(LARGE)
    unfinished = folder / "hub/models--owner--tiny/blobs" / f"{digest}.incomplete"

    @settings(max_examples=25)
    @given(told=wrong_answers(LARGE, FILES[LARGE]), is_resumed=st.booleans())
    def holds(told, is_resumed):
        empty_cache(folder)
        if is_resumed:
            unfinished.parent.mkdir(parents=True)
            unfinished.write_bytes(FILES[LARGE][:100_000])
        for hub.told in (told, hub_as_it_is):
            with suppress(PenstockError):
                require_whole(fetched())
                return
        assert not list(folder.rglob(LARGE))
        require_whole(fetched())  # what isn't the file was removed

    holds()
    assert not any(each.has_token for each in hub.requests if "/cdn/" in each.path)


def test_a_broken_link_to_a_content_is_made_anew(hub):
    (fetched() / LARGE).resolve().unlink()
    require_whole(fetched())
