"""What is a request's head and what isn't: nothing passes that two readers could read in two ways."""

import httptools
import pytest
from builders.malformed import HEADS, head
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.http.connections.request_head import BadRequest, check_beginning, parse_head


def test_a_head_is_told_in_its_parts():
    found = parse_head(head(b"GET /a%20b?c=d?e HTTP/1.1", b"Host: x", b"X-Two:  a b \t", b"x-two: c", b"Empty:"))
    assert (found.method, found.path, found.query, found.version) == ("GET", b"/a%20b", b"c=d?e", "1.1")
    assert found.headers == [(b"host", b"x"), (b"x-two", b"a b"), (b"x-two", b"c"), (b"empty", b"")]
    assert (found.length, found.keeps_alive, found.expects_continue) == (0, True, False)


@pytest.mark.parametrize("lines, keeps_alive", [
    ((b"GET / HTTP/1.1", b"Connection: keep-alive"), True),
    ((b"GET / HTTP/1.1", b"Connection: Upgrade", b"Upgrade: h2c"), True),
    ((b"GET / HTTP/1.1", b"Connection: keep-alive, CLOSE"), False),
    ((b"GET / HTTP/1.1", b"Connection: keep-alive", b"Connection: close"), False),
    ((b"GET / HTTP/1.0", b"Host: x"), False),
    ((b"GET / HTTP/1.0", b"Connection: keep-alive"), False),
])  # fmt: skip
def test_who_keeps_the_connection(lines, keeps_alive):
    assert parse_head(head(*lines)).keeps_alive is keeps_alive


@pytest.mark.parametrize("lines, length", [
    ((b"Content-Length: 5",), 5),
    ((b"content-length:\t007 ",), 7),
    ((b"Transfer-Encoding: chunked",), None),
    ((b"transfer-encoding:  Chunked ",), None),
    ((b"Host: x",), 0),
])  # fmt: skip
def test_how_long_the_body_is(lines, length):
    assert parse_head(head(b"POST / HTTP/1.1", *lines)).length == length


@pytest.mark.parametrize("target, path", [
    (b"http://localhost/health", b"/health"), (b"HTTP://LocalHost", b"/"), (b"https://localhost?a=b", b"/"),
    (b"//elsewhere/health", b"//elsewhere/health"), (b"/" + b"a" * 60_000, b"/" + b"a" * 60_000),
])  # fmt: skip
def test_a_target_is_a_path_or_the_whole_address_of_the_same_host(target, path):
    assert parse_head(head(b"GET " + target + b" HTTP/1.1", b"Host: localhost")).path == path


def test_a_question_to_the_server_itself_has_a_star():
    assert parse_head(head(b"OPTIONS * HTTP/1.1", b"Host: x")).path == b"*"


@pytest.mark.parametrize("wrong, status", HEADS.values(), ids=HEADS)
def test_what_could_be_read_in_two_ways_is_refused(wrong, status):
    with pytest.raises(BadRequest) as refused:
        parse_head(wrong)
    assert refused.value.status == status, refused.value


@pytest.mark.parametrize("beginning", [b"G", b"POST", b"GET ", b"M-SEARCH * HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_what_may_become_a_request_is_waited_for(beginning):
    check_beginning(beginning)


@pytest.mark.parametrize("beginning", [b"\x16\x03\x01", b"\0", b"get", b"{", b" GET", b"\rGET", b"A" * 21, b"GE\x00"])
def test_what_cannot_is_refused_at_its_first_bytes(beginning):
    with pytest.raises(BadRequest):
        check_beginning(beginning)


class Told:
    def __init__(self) -> None:
        self.url, self.ends, self.begins = b"", 0, 0

    def on_message_begin(self) -> None:
        self.begins += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_headers_complete(self) -> None:
        self.ends += 1


MARKS = st.sampled_from([b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"?", b"#", b"0",
                         b"chunked", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\x80",
                         b"HTTP/1.1"])  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 90), MARKS), min_size=1, max_size=4), st.booleans())
def test_whatever_is_accepted_is_one_request_to_another_reader_too(marks, overwrites):
    changed = bytearray(head(b"POST /v1/completions?a=b HTTP/1.1", b"Host: localhost", b"Content-Length: 3", b"X: y"))
    for place, mark in marks:
        changed[place : place + len(mark) * overwrites] = mark
    changed = changed[: changed.find(b"\r\n\r\n") + 4]
    try:
        found = parse_head(bytes(changed))
    except BadRequest:
        return
    told = Told()
    parser = httptools.HttpRequestParser(told)
    parser.feed_data(bytes(changed))
    assert (told.begins, told.ends, parser.get_http_version()) == (1, 1, found.version)
    assert told.url.partition(b"?")[0].endswith(found.path)
