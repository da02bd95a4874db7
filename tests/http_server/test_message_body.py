"""Where bodies end: however their bytes are cut on the way, and whatever stands in chunks beside their content."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.http.connections.message_body import MOST_CHUNKS, ChunkedBody, SizedBody
from penstock.frontend.http.connections.request_head import BadRequest

NEXT = b"GET /next HTTP/1.1\r\n\r\n"


def read(body, pieces):
    """Its content, and what is left behind it."""
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
    "no number": b"x\r\n",
    "no size": b"\r\n",
    "no size before an extension": b";a\r\n",
    "a number as Python writes it": b"0x5\r\nhello\r\n",
    "a number with an underscore": b"1_0\r\n",
    "a signed number": b"+5\r\nhello\r\n",
    "a negative number": b"-5\r\nhello\r\n",
    "a space before": b" 5\r\nhello\r\n",
    "a space behind": b"5 \r\nhello\r\n",
    "a million digits": b"0" * 1_000_000 + b"5\r\n",
    "a size beyond all": b"1" + b"0" * 16 + b"\r\n",
    "a space before an extension": b"5 ;a\r\nhello\r\n",
    "an extension of no name": b"5;\r\nhello\r\n",
    "a request in place of a trailer": b"0\r\nGET /hidden HTTP/1.1\r\n\r\n",
    "a folded trailer": b"0\r\nX: y\r\n z\r\n\r\n",
    "a NUL in a trailer": b"0\r\nX: \0\r\n\r\n",
    "a NUL in an extension": b"5;\0\r\nhello\r\n",
    "an extension without end": b"5;" + b"a" * 1_000_000,
    "a bare LF behind the size": b"5\nhello\r\n",
    "a bare CR behind the size": b"5\rhello\r\n",
    "a bare LF in an extension": b"5;a\nb\r\nhello\r\n",
    "a chunk that is too long": b"5\r\nhello!\r\n",
    "a bare LF behind the content": b"5\r\nhello\n0\r\n\r\n",
    "a CR without its LF": b"5\r\nhello\r0\r\n\r\n",
    "a trailer that is too long": b"0\r\nX: " + b"y" * 1_000_000,
    "too many trailers": b"0\r\n" + b"X: y\r\n" * 1_000,
    "a bare LF in a trailer": b"0\r\nX: y\nZ: z\r\n\r\n",
    "a bare CR in a trailer": b"0\r\nX: y\rZ: z\r\n\r\n",
    "too many chunks": b"1\r\na\r\n" * (MOST_CHUNKS + 1),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_could_be_read_in_two_ways_or_never_ends_is_refused(wrong):
    with pytest.raises(BadRequest):
        ChunkedBody(1000).take(bytearray(wrong))


@pytest.mark.parametrize("endless", [b"5;" + b"a" * 9999, b"0\r\nX: " + b"y" * 9999, b"0\r\n" + b"X: y\r\n" * 999])
def test_little_is_kept_of_what_never_ends(endless):
    body, buffer = ChunkedBody(1000), bytearray()
    with pytest.raises(BadRequest):
        for byte in endless:
            buffer.append(byte)
            body.take(buffer)
            assert len(buffer) <= 1000


class Told:
    def __init__(self) -> None:
        self.content, self.has_ended = b"", False

    def on_body(self, piece: bytes) -> None:
        self.content += piece

    def on_message_complete(self) -> None:
        self.has_ended = True


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"\0", b" ", b";", b"0", b"a", b"-", b"_", b"x", b"0\r\n\r\n", b"3;a\r\n"]
)), min_size=1, max_size=3), st.booleans())  # fmt: skip
def test_whatever_is_accepted_is_the_same_body_to_another_reader(marks, overwrites):
    changed = bytearray(in_chunks([b"hello", b"bc" * 8], trailers=b"X: y\r\n"))
    for place, mark in marks:
        changed[place : place + len(mark) * overwrites] = mark
    body, buffer = ChunkedBody(1000), bytearray(changed)
    try:
        content = body.take(buffer)
    except BadRequest:
        return
    told = Told()
    parser = httptools.HttpRequestParser(told)
    parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    taken = changed[: len(changed) - len(buffer)]
    try:
        parser.feed_data(bytes(taken))
    except httptools.HttpParserError:
        pytest.fail(f"another reader refuses {bytes(taken)!r}")
    assert (told.content, told.has_ended) == (content, body.is_complete)
