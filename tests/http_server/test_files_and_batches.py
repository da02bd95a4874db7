"""Files and batches over HTTP: whose they are, what is refused, and that a batch's answers are those of a job."""

import asyncio
import json
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from builders.batch_input import CHATS, MULTIPART, form, line
from builders.cases import for_each
from builders.later import Later
from builders.raw_http import replies, spoken
from builders.served import served
from builders.watching import wait_until
from hypothesis import given
from hypothesis import strategies as some

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.files.multipart import FormParser, PartHead
from penstock.frontend.http.files.store import FileStore, StoredFile, new_id
from penstock.frontend.http.files.upload import sanitized
from penstock.frontend.http.operations import OPERATIONS
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.schemas.files import FileObject, FileQuery
from penstock.frontend.rows.line_forms import LINE_FORMS, LineForm

openai = Later("openai")

BOUND = 120.0


@pytest.fixture(scope="module")
def model(quick) -> tuple:
    return quick


@contextmanager
def clients(model: tuple, *keys: str, **options: Any) -> Iterator[Any]:
    with served(*model, **options) as server, ExitStack() as stack:
        given = {"base_url": server.address + "/v1", "max_retries": 0, "timeout": BOUND}
        yield (server, *(stack.enter_context(openai.OpenAI(api_key=key, **given)) for key in keys or ("none",)))


def ended(client: "openai.OpenAI", content: str, endpoint: str = CHATS, **more: Any) -> Any:
    """The batch of these lines once it has ended."""
    file = client.files.create(file=("in.jsonl", content.encode()), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)
    wait_until(lambda: client.batches.retrieve(batch.id).status in ("completed", "failed"), "it has ended", BOUND)
    return client.batches.retrieve(batch.id)


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_are_kept_listed_read_and_deleted_and_seen_by_nobody_else(model, keys):
    with clients(model, "first", "second", **keys) as (_, first, second):
        made = [first.files.create(file=(f"../a/{n}\n.jsonl", b"x" * n), purpose="batch") for n in (1, 2, 3)]
        assert [file.bytes for file in made] == [1, 2, 3] and made[0].filename == "1.jsonl"
        ids = [file.id for file in made]
        assert [file.id for file in first.files.list(order="asc", purpose="batch")] == ids
        assert [file.id for file in first.files.list(order="asc", limit=1, after=ids[0])] == ids[1:]
        assert first.files.content(ids[2]).read() == b"xxx" and first.files.retrieve(ids[1]) == made[1]
        assert list(second.files.list()) == []
        batch = {"endpoint": CHATS, "completion_window": "24h", "input_file_id": ids[0]}
        for call in (
            lambda: second.files.retrieve(ids[0]), lambda: second.files.content(ids[0]),
            lambda: second.files.delete(ids[0]), lambda: second.batches.create(**batch),
        ):  # fmt: skip
            with pytest.raises(openai.NotFoundError):
                call()
        for after, listed in {ids[0]: first.batches, "nosuch": first.files}.items():
            with pytest.raises(openai.BadRequestError, match="must be the last id of the page before"):
                listed.list(after=after)
        for window in ("24", "0h", "31d", "24H", ""):
            with pytest.raises(openai.BadRequestError, match=f"='{window}': must be hours or days such as 24h"):
                first.batches.create(**batch | {"completion_window": window})
        for file in first.files.list(limit=1):  # a page goes on behind what has just been deleted
            assert first.files.delete(file.id).deleted
        assert list(first.files.list()) == []


GOOD = form(b"some")
REFUSED = [
    ("multipart/form-data", "", GOOD, 400, "names no boundary"),
    ("application/json", "", b"{}", 415, "comes as a form"),
    (MULTIPART, "Content-Encoding: gzip", GOOD, 415, "Compressed"),
    (MULTIPART, "Origin: http://elsewhere", GOOD, 403, "another site"),
    (MULTIPART, "", GOOD[:-8], 400, "boundary"),
    (MULTIPART, "", b"x" * 1000, 400, "last boundary"),
    (MULTIPART, "", form(b""), 400, "empty"),
    (MULTIPART, "", form(b"a")[:-7] + b"\r\n" + form(b"b"), 400, "twice"),
    (MULTIPART, "", form(b"a", b"fine-tune"), 400, "batches alone"),
    (MULTIPART, "", form(b"a", b"x" * 5000), 400, "1,024 bytes"),
    (MULTIPART, "", form(b"a").replace(b'name="file"', b'name="other"'), 400, "no file"),
    (MULTIPART, "", form(b"a").replace(b'; name="purpose"', b""), 400, "no name"),
    (MULTIPART, "", b"--B\r\nX: " + b"y" * 20_000, 400, "8,192 bytes"),
    (MULTIPART, "", form(b"y" * 3000), 413, "at most 2,000 bytes"),
    (MULTIPART, "", form(b"y" * 1900) + b" " * 80_000, 413, "at most 2,000 bytes"),
    (MULTIPART, "", b"x" * 66_000, 413, "not its file's"),
    (MULTIPART, "", form(b"a") + b"x" * 66_000, 413, "not its file's"),
    (MULTIPART, "", form(b"a").replace(b'"purpose"', b'"purpose[x]"'), 400, "batches alone"),
]


@pytest.fixture(scope="module")
def small(model) -> Iterator[Any]:
    with served(*model, max_file_bytes=2000, max_stored_bytes=200_000) as server:
        yield server


@for_each("kind, header, body, status, words", REFUSED)
def test_an_upload_that_is_no_proper_form_is_refused_and_leaves_nothing(small, kind, header, body, status, words):
    head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nConnection: close\r\n"
    head += f"{header}\r\n" * bool(header) + f"Content-Length: {len(body)}\r\n\r\n"
    [reply] = replies(spoken(small.port, head.encode() + body))
    assert reply.status == status and words in json.loads(reply.body)["error"]["message"], reply
    store = small.stored._open[0]
    wait_until(lambda: not store.used[""], "what was counted meanwhile is given back", BOUND)
    assert list(store.folder.iterdir()) == []


def test_what_an_owner_may_keep_is_counted_while_it_arrives(small):
    with openai.OpenAI(base_url=small.address + "/v1", api_key="none", max_retries=0) as client:
        kept = [client.files.create(file=("a", b"x"), purpose="batch") for _ in range(3)]  # 64 KiB each, at least
        with pytest.raises(openai.BadRequestError, match="max_stored_bytes"):
            client.files.create(file=("a", b"x"), purpose="batch")
        for file in kept:
            client.files.delete(file.id)


@given(
    pieces=some.lists(some.sampled_from([b"\r\n", b"--", b"B", b"\r", b"\n", b"-", b"x", b"\r\n--C"]), max_size=12),
    cuts=some.lists(some.integers(0, 400)),
)
def test_a_form_is_read_alike_however_it_is_cut(pieces, cuts):
    content = b"".join(pieces).replace(b"\r\n--B", b"\r\n--A")
    body, parser = form(content), FormParser(b"B")
    ends = [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)]
    events = [event for start, end in zip(ends, ends[1:], strict=False) for event in parser.feed(body[start:end])]
    parser.end()
    heads = [event for event in events if isinstance(event, PartHead)]
    assert heads == [PartHead("purpose", None), PartHead("file", "a")]
    first_end = events.index(None)
    assert b"".join(event for event in events[first_end:] if isinstance(event, bytes)) == content


@for_each("given, name", [("../../etc/passwd", "passwd"), ("C:\\x\\y.jsonl", "y.jsonl"), ("..", "file"),
                          ("a\x00\u202eb\n", "ab"), ("", "file"), ("x" * 999, "x" * 255)])  # fmt: skip
def test_a_name_has_no_folders_and_misleads_nobody(given, name):
    assert sanitized(given) == name


def test_a_store_opens_with_whole_files_alone_and_forgets_them_when_their_time_is_over(tmp_path):
    now = [1000.0]
    options = HttpOptions()
    store = FileStore(tmp_path / "files", options, lambda: now[0])
    shown = FileObject(id=new_id("file-"), bytes=3, created_at=1000, filename="a", purpose="batch", expires_at=2000)
    (tmp_path / "arrived").write_bytes(b"abc")
    store.keep(tmp_path / "arrived", StoredFile("me", shown))
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()} == {0o600}
    for name in ("x.unfinished", "file-0.content", "file-1.json.unfinished"):  # as a crash leaves them
        (store.folder / name).write_bytes(b"half")
    again = FileStore(tmp_path / "files", options, lambda: now[0])
    assert again.listing("me", FileQuery()) == ([shown], False) and len(list(store.folder.iterdir())) == 2
    now[0] = 2000.0
    with pytest.raises(ApiError, match="expired"):
        again.find(shown.id, "me")
    [over] = again.expired()
    again.forget(over)
    content = again.content(shown.id)
    content.unlink()
    content.mkdir()  # which ends a removal in the middle, as a crash does
    with pytest.raises(OSError):
        again.remove(over)
    assert [path.name for path in store.folder.iterdir()] == [content.name], "a file is there once its description is"
    content.rmdir()
    content.write_bytes(b"abc")
    again.remove(over)
    assert list(store.folder.iterdir()) == [] and not again.used.total()


# --- batches ----------------------------------------------------------------------------------------------------------


def test_every_endpoint_that_answers_takes_lines():
    # Ollama's answers have times in them.
    assert set(LINE_FORMS) == {row.path for row in OPERATIONS if row.answer_ids and not row.path.startswith("/api/")}


@for_each("endpoint", [path for path, kind in LINE_FORMS.items() if issubclass(kind.form, LineForm)])
def test_a_batch_has_the_answers_of_a_job_byte_for_byte(model, endpoint, tmp_path):
    llm, loop = model
    content = "\n".join(
        [line(f"r{n}", endpoint, seed=n) for n in range(7)] + [line("wrong", endpoint, temperature="hot")]
    )
    (tmp_path / "in.jsonl").write_text(content)
    with clients(model) as (_, client):
        batch = ended(client, content, endpoint, metadata={"a": "b"})
        found = [client.files.content(each).read() for each in (batch.output_file_id, batch.error_file_id)]
    assert (batch.status, batch.metadata, batch.model) == ("completed", {"a": "b"}, "pocket")
    assert (batch.request_counts.completed, batch.request_counts.failed, batch.request_counts.total) == (7, 1, 8)
    usages = [json.loads(each)["response"]["body"]["usage"] for each in found[0].splitlines()]
    prompts = sum(each.get("prompt_tokens", each.get("input_tokens", 0)) for each in usages)
    prompts += sum(each.get("cache_read_input_tokens", 0) for each in usages)  # Anthropic counts these apart
    outputs = sum(each.get("completion_tokens", each.get("output_tokens", 0)) for each in usages)
    assert (batch.usage.input_tokens, batch.usage.output_tokens) == (prompts, outputs)
    assert batch.usage.total_tokens == prompts + outputs > 0
    if endpoint == CHATS:  # the others' limit is the context, or 16
        running = asyncio.run_coroutine_threadsafe(llm.batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl"), loop)
        job = running.result(BOUND)
        assert found == [job.output.read_bytes(), job.errors.read_bytes()]
    assert [json.loads(each)["custom_id"] for each in found[0].splitlines()] == [f"r{n}" for n in range(7)]
    assert "temperature='hot'" in json.loads(found[1])["response"]["body"]["error"]["message"]


@for_each("lines, code, number", [
    ([], "empty_file", None), (["nonsense"], "invalid_json_line", 1), (["", "[1]"], "invalid_json_line", 2),
    ([line("a"), line("a")], "duplicate_custom_id", 2), ([line("a"), line("b", model="x")], "mismatched_model", 2),
    ([line("a", model="nobody")], "model_not_found", 1), ([line("a", "/v1/completions")], "mismatched_url", 1),
    ([line("a").replace("POST", "GET")], "invalid_method", 1), (["[" * 5000], "invalid_json_line", 1),
    ([line("a", model=None)], "missing_required_parameter", 1),
    ([line("a").replace('"custom_id"', '"id"')], "missing_required_parameter", 1),
    ([line("a", messages="x" * 9000)], "line_too_long", 1),
    ([line(str(n)) for n in range(11)], "too_many_requests", 11),
])  # fmt: skip
def test_a_wrong_input_fails_with_the_line(limited, lines, code, number):
    batch = ended(limited, "\n".join(lines) + "\n")
    [fault] = batch.errors.data
    assert (batch.status, fault.code, fault.line) == ("failed", code, number) and batch.output_file_id is None


@pytest.fixture(scope="module")
def limited(model) -> "Iterator[openai.OpenAI]":
    with clients(model, max_body_bytes=8000, max_batch_lines=10) as (_, client):
        yield client
