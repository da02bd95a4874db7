"""Reads the head of a request, its first line and its headers, and refuses anything that two parsers could read
differently.

Bare CR or LF, folded lines, two lengths, a length together with chunks: with these a client could smuggle a request
past a proxy that parses them differently. httptools splits the head into its parts, and does its own checks. It gets
one head at a time, because it can't be stopped between two requests.
"""

import re
from dataclasses import dataclass

import httptools

END = b"\r\n\r\n"
MOST_HEADERS = 128

_FIRST_LINE = re.compile(rb"([A-Z-]+) ([\x21-\x7e]+) HTTP/(1\.[01])\r\n")
_OTHER_VERSION = re.compile(rb"[^\r\n]* HTTP/(?!1\.[01]\r)[0-9.]+\r\n")
# A valid incomplete first line.
_BEGINNING = re.compile(rb"[A-Z-]{1,20}(?: |\Z)")
_ABSOLUTE_TARGET = re.compile(rb"https?://([^/?@]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,19}")


class BadRequest(Exception):
    """The received bytes are no request that this server accepts; the connection is closed after the error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: str
    path: bytes  # as sent, with its escapes
    query: bytes
    version: str  # 1.0 or 1.1
    headers: list[tuple[bytes, bytes]]  # names in lower case
    length: int | None  # of the body; None if it is chunked

    @property
    def keeps_alive(self) -> bool:
        return self.version == "1.1" and b"close" not in _listed(self.headers, b"connection")

    @property
    def expects_continue(self) -> bool:
        return self.version == "1.1" and b"100-continue" in _listed(self.headers, b"expect")


def check_beginning(received: bytes | bytearray) -> None:
    """Refuse at once anything that can't become a request, however much is still to arrive."""
    if not _BEGINNING.match(received):
        raise BadRequest(400, "This is no HTTP request.")


def parse_head(head: bytes) -> RequestHead:
    """Parse the bytes up to and including the empty line; raises `BadRequest`."""
    _check_lines(head)
    first = _FIRST_LINE.match(head)
    if first is None:
        if _OTHER_VERSION.match(head):
            raise BadRequest(505, "This server speaks HTTP/1.1.")
        raise BadRequest(400, "The first line must be METHOD TARGET HTTP/1.1, with single spaces between.")
    method, target, version = first.groups()
    headers = _headers(head)
    path, query = _target(method, target, headers)
    return RequestHead(method.decode(), path, query, version.decode(), headers, _length(headers, version))


def _check_lines(head: bytes) -> None:
    lines = head.count(b"\r\n")
    if head.count(b"\r") != lines or head.count(b"\n") != lines:
        raise BadRequest(400, "Lines of a request end with CR and LF, and neither stands alone.")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise BadRequest(400, "Headers that go on in a second line are not taken.")
    if lines - 2 > MOST_HEADERS:  # the first line and the empty one
        raise BadRequest(431, f"There are {lines - 2:,} headers, and the limit is {MOST_HEADERS}.")


class _HeaderCollector:
    """Collects the headers; httptools calls it back."""

    def __init__(self) -> None:
        self.found: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.found.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    collector = _HeaderCollector()
    try:
        httptools.HttpRequestParser(collector).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass  # the protocol is never upgraded; the request is answered normally
    except httptools.HttpParserError as error:
        raise BadRequest(400, f"The request can't be read: {error}.") from None
    if not collector.is_complete:
        raise BadRequest(400, "The request can't be read.")
    return collector.found


def _target(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Path and query. An absolute URL, as sent to proxies, must name the same host as the Host header."""
    if b"#" in target:
        raise BadRequest(400, "A request's target has no fragment.")
    if (target.startswith(b"/") and method != b"CONNECT") or (method == b"OPTIONS" and target == b"*"):
        path, _, query = target.partition(b"?")
        return path, query
    absolute = _ABSOLUTE_TARGET.fullmatch(target)
    if absolute is None or method == b"CONNECT":
        raise BadRequest(400, "A request's target begins with a slash; this server is no proxy.")
    if [absolute[1].lower()] != [value.lower() for value in _values(headers, b"host")]:
        raise BadRequest(400, "The request's target and its Host header name different hosts.")
    return absolute[2] or b"/", (absolute[3] or b"?")[1:]


def _length(headers: list[tuple[bytes, bytes]], version: bytes) -> int | None:
    lengths, codings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
    if codings:
        if lengths or version == b"1.0" or [coding.lower() for coding in codings] != [b"chunked"]:
            raise BadRequest(400, "Transfer-Encoding must be chunked, alone, and without a Content-Length.")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadRequest(400, "There must be one Content-Length, a whole number.")
    return int(lengths[0])


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for each, value in headers if each == name]


def _listed(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [part.strip().lower() for value in _values(headers, name) for part in value.split(b",")]
