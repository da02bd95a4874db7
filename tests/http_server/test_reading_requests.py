"""Where a request's head and body end, and what is neither: nothing passes that two readers could read in two ways."""

from collections.abc import Callable

import httptools
import pytest
from builders.cases import for_each
from builders.raw_http import HEADS, head
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.http.connections.message_body import MOST_CHUNKS, ChunkedBody, SizedBody
from penstock.frontend.http.connections.request_head import BadRequest, check_beginning, parse_head


class Told(list):
    """What another reader makes of a request: the names of its callbacks, each with what it was given."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.append((name, b"".join(given)))

    def of(self, name: str) -> list[bytes]:
        return [given for each, given in self if each == name]


def changed(sent: bytes, marks: list[tuple[int, bytes]], overwrites: bool) -> bytearray:
    found = bytearray(sent)
    for place, mark in marks:
        found[place : place + len(mark) * overwrites] = mark
    return found


def marks(longest: int, kinds: list[bytes], most: int) -> st.SearchStrategy:
    return st.lists(st.tuples(st.integers(0, longest), st.sampled_from(kinds)), min_size=1, max_size=most)


def test_a_head_is_told_in_its_parts_and_with_the_length_of_its_body():
    found = parse_head(head(b"GET /a%20b?c=d?e HTTP/1.1", b"Host: x", b"X-Two:  a b \t", b"x-two: c", b"Empty:"))
    assert (found.method, found.path, found.query, found.version) == ("GET", b"/a%20b", b"c=d?e", "1.1")
    assert found.headers == [(b"host", b"x"), (b"x-two", b"a b"), (b"x-two", b"c"), (b"empty", b"")]
    assert (found.length, found.keeps_alive, found.expects_continue) == (0, True, False)
    for line, length in {
        b"Content-Length: 5": 5,
        b"content-length:\t007 ": 7,
        b"Transfer-Encoding: chunked": None,
        b"transfer-encoding:  Chunked ": None,
    }.items():
        assert parse_head(head(b"POST / HTTP/1.1", line)).length == length, line


@for_each("keeps_alive, lines", [
    (True, (b"GET / HTTP/1.1", b"Connection: keep-alive")),
    (True, (b"GET / HTTP/1.1", b"Connection: Upgrade", b"Upgrade: h2c")),
    (False, (b"GET / HTTP/1.1", b"Connection: keep-alive, CLOSE")),
    (False, (b"GET / HTTP/1.1", b"Connection: keep-alive", b"Connection: close")),
    (False, (b"GET / HTTP/1.0", b"Host: x")),
    (False, (b"GET / HTTP/1.0", b"Connection: keep-alive")),
])  # fmt: skip
def test_who_keeps_the_connection(keeps_alive, lines):
    assert parse_head(head(*lines)).keeps_alive is keeps_alive


@for_each("target, path", [
    (b"http://localhost/health", b"/health"), (b"HTTP://LocalHost", b"/"), (b"https://localhost?a=b", b"/"),
    (b"//elsewhere/health", b"//elsewhere/health"), (b"/" + b"a" * 60_000, b"/" + b"a" * 60_000),
])  # fmt: skip
def test_a_target_is_a_path_or_the_whole_address_of_the_same_host(target, path):
    assert parse_head(head(b"GET " + target + b" HTTP/1.1", b"Host: localhost")).path == path
    assert parse_head(head(b"OPTIONS * HTTP/1.1", b"Host: x")).path == b"*"


@for_each("wrong, status", HEADS.values(), ids=HEADS)
def test_a_head_that_could_be_read_in_two_ways_is_refused(wrong, status):
    with pytest.raises(BadRequest) as refused:
        parse_head(wrong)
    assert refused.value.status == status, refused.value


def test_what_may_become_a_request_is_waited_for_and_what_cannot_is_refused_at_its_first_bytes():
    for beginning in (b"G", b"POST", b"GET ", b"M-SEARCH * HT", b"GET / HTTP/1.1\r\nHost: a\r\n"):
        check_beginning(beginning)
    for beginning in (b"\x16\x03\x01", b"\0", b"get", b"{", b" GET", b"\rGET", b"A" * 21, b"GE\x00"):
        with pytest.raises(BadRequest):
            check_beginning(beginning)


IN_HEADS = [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"?", b"#", b"0", b"chunked",
            b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\x80", b"HTTP/1.1"]  # fmt: skip


@given(marks(90, IN_HEADS, 4), st.booleans())
def test_whatever_is_accepted_is_one_request_to_another_reader_too(marks, overwrites):
    sent = changed(
        head(b"POST /v1/completions?a=b HTTP/1.1", b"Host: localhost", b"Content-Length: 3", b"X: y"), marks, overwrites
    )
    sent = bytes(sent[: sent.find(b"\r\n\r\n") + 4])
    try:
        found = parse_head(sent)
    except BadRequest:
        return
    told = Told()
    parser = httptools.HttpRequestParser(told)
    parser.feed_data(sent)
    assert (len(told.of("on_message_begin")), len(told.of("on_headers_complete"))) == (1, 1)
    assert parser.get_http_version() == found.version
    assert b"".join(told.of("on_url")).partition(b"?")[0].endswith(found.path)


# --- bodies, however their bytes are cut on the way ------------------------------------------------------------------

NEXT = b"GET /next HTTP/1.1\r\n\r\n"


def read(body, pieces):
    buffer, content = bytearray(), b""
    for piece in pieces:
        buffer += piece
        content += body.take(buffer)
    assert body.is_complete, "it has not ended"
    return content, bytes(buffer)


def cut(sent, places):
    bounds = [0, *sorted(place % len(sent) for place in places), len(sent)]
    return [sent[start:end] for start, end in zip(bounds, bounds[1:])]


def in_chunks(pieces, extension=b"", trailers=b""):
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces if piece)
    return chunks + b"0\r\n" + trailers + b"\r\n"


PLACES = st.lists(st.integers(0, 10**6), max_size=12)


@given(st.binary(max_size=300), PLACES)
def test_a_sized_body_ends_after_its_bytes(content, places):
    assert read(SizedBody(len(content)), cut(content + NEXT, places)) == (content, NEXT)


@given(st.lists(st.binary(max_size=60), max_size=6), PLACES, st.sampled_from([b"", b";a=b", b';a;b="c d;"']),
       st.sampled_from([b"", b"X: y\r\n", b"Authorization: Bearer key\r\nHost: elsewhere\r\n"]))  # fmt: skip
def test_chunks_are_put_together_and_what_stands_beside_them_is_dropped(pieces, places, extension, trailers):
    sent = in_chunks(pieces, extension, trailers) + NEXT
    assert read(ChunkedBody(1000), cut(sent, places)) == (b"".join(pieces), NEXT)


WRONG = {
    "no size": b"\r\n",
    "a number as Python writes it": b"0x5\r\nhello\r\n",
    "a number with an underscore": b"1_0\r\n",
    "a signed number": b"+5\r\nhello\r\n",
    "a space before": b" 5\r\nhello\r\n",
    "a space behind": b"5 \r\nhello\r\n",
    "a size beyond all": b"1" + b"0" * 16 + b"\r\n",
    "a space before an extension": b"5 ;a\r\nhello\r\n",
    "an extension of no name": b"5;\r\nhello\r\n",
    "a folded trailer": b"0\r\nX: y\r\n z\r\n\r\n",
    "a NUL in a trailer": b"0\r\nX: \0\r\n\r\n",
    "a NUL in an extension": b"5;\0\r\nhello\r\n",
    "an extension without end": b"5;" + b"a" * 1_000_000,
    "a bare LF behind the size": b"5\nhello\r\n",
    "a chunk that is too long": b"5\r\nhello!\r\n",
    "a bare LF behind the content": b"5\r\nhello\n0\r\n\r\n",
    "a CR without its LF": b"5\r\nhello\r0\r\n\r\n",
    "a trailer that is too long": b"0\r\nX: " + b"y" * 1_000_000,
    "a bare CR in a trailer": b"0\r\nX: y\rZ: z\r\n\r\n",
    "too many chunks": b"1\r\na\r\n" * (MOST_CHUNKS + 1),
}


@for_each("wrong", WRONG.values(), ids=WRONG)
def test_what_could_be_read_in_two_ways_or_never_ends_is_refused(wrong):
    with pytest.raises(BadRequest):
        ChunkedBody(1000).take(bytearray(wrong))


@for_each("endless", [b"5;" + b"a" * 9999, b"0\r\nX: " + b"y" * 9999, b"0\r\n" + b"X: y\r\n" * 999])
def test_little_is_kept_of_what_never_ends(endless):
    body, buffer = ChunkedBody(1000), bytearray()
    with pytest.raises(BadRequest):
        for byte in endless:
            buffer.append(byte)
            body.take(buffer)
            assert len(buffer) <= 1000


@given(marks(40, [b"\r", b"\n", b"\r\n", b"\0", b" ", b";", b"0", b"a", b"-", b"_", b"x", b"0\r\n\r\n", b"3;a\r\n"], 3),
       st.booleans())  # fmt: skip
def test_whatever_is_accepted_is_the_same_body_to_another_reader(marks, overwrites):
    sent = changed(in_chunks([b"hello", b"bc" * 8], trailers=b"X: y\r\n"), marks, overwrites)
    body, buffer = ChunkedBody(1000), bytearray(sent)
    try:
        content = body.take(buffer)
    except BadRequest:
        return
    told = Told()
    parser = httptools.HttpRequestParser(told)
    parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    taken = bytes(sent[: len(sent) - len(buffer)])
    try:
        parser.feed_data(taken)
    except httptools.HttpParserError:
        pytest.fail(f"another reader refuses {taken!r}")
    assert b"".join(told.of("on_body")) == content
    assert bool(told.of("on_message_complete")) == body.is_complete
