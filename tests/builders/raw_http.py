"""Requests as no proper client sends them: bytes on a socket, and heads that can be read in two ways."""

import json
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


def connected(port: int, timeout: float = 60.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def spoken(port: int, sent: bytes, timeout: float = 60.0) -> bytes:
    """All that the server says until it closes the connection, or says nothing for a while."""
    with connected(port, timeout) as connection:
        with suppress(OSError):  # it may have heard enough already
            connection.sendall(sent)
        return heard(connection)


def heard(connection: socket.socket) -> bytes:
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
            if b"\r\n\r\n" in found and b"content-length: 0" in found.lower():
                break
    except OSError:
        pass
    return found


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


def replies(said: bytes) -> list[Reply]:
    """All that were sent on one connection, one behind the other."""
    found = []
    while said:
        head, end, said = said.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        assert end and first.startswith("HTTP/1.1 "), said[:500]
        headers = dict(line.lower().split(": ", 1) for line in lines)
        if headers.get("transfer-encoding") == "chunked":
            body, said = _of_chunks(said)
        else:
            length = int(headers.get("content-length", "0"))
            assert len(said) >= length, "the last one is cut off"
            body, said = said[:length], said[length:]
        found.append(Reply(int(first[9:12]), headers, body))
    return found


def _of_chunks(said: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, _, said = said.partition(b"\r\n")
        number = int(size, 16)
        assert said[number : number + 2] == b"\r\n", "a chunk is cut off"
        body, said = body + said[:number], said[number + 2 :]
        if not number:
            return body, said


def is_closed(connection: socket.socket, seconds: float = 60.0) -> bool:
    """True if the server ends the connection by itself; what it sends before that is dropped."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            if not connection.recv(65536):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def request(body: bytes, path: str = "/v1/completions", **headers: str) -> bytes:
    lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body)),
             "Connection": "close"}  # fmt: skip
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def posted(body: Any, path: str = "/v1/completions", **headers: str) -> bytes:
    return request(body if isinstance(body, bytes) else json.dumps(body).encode(), path, **headers)


CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def endless_trailers(port: int, most: int) -> int:
    """How many bytes of them the server takes, `most` at most, before it ends the connection or stops reading."""
    sent = 0
    with connected(port, 10) as connection, suppress(OSError):
        connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\n")
        while sent < most:
            sent += connection.send((b"x-trailer: " + b"y" * 100 + b"\r\n") * 500)
    return sent


# --- heads that two readers could read in two ways, each with the status that refuses it -----------------------------


def head(first: bytes = b"POST /v1/completions HTTP/1.1", *lines: bytes) -> bytes:
    return b"\r\n".join((first, *(lines or (b"Host: localhost",)), b"", b""))


HEADS: dict[str, tuple[bytes, int]] = {
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "HTTP/11": (head(b"GET / HTTP/11"), 505),
    "another protocol": (head(b"GET / RTSP/1.0"), 400),
    "a method of small letters": (head(b"get / HTTP/1.1"), 400),
    "an unknown method": (head(b"FETCH / HTTP/1.1"), 400),
    "two spaces": (head(b"GET  / HTTP/1.1"), 400),
    "a tab": (head(b"GET\t/ HTTP/1.1"), 400),
    "CONNECT to a path": (head(b"CONNECT / HTTP/1.1"), 400),
    "CONNECT to an address": (head(b"CONNECT http://localhost/ HTTP/1.1"), 400),
    "a star for GET": (head(b"GET * HTTP/1.1"), 400),
    "a target without a slash": (head(b"GET health HTTP/1.1"), 400),
    "another host's address": (head(b"GET http://evil.example/ HTTP/1.1"), 400),
    "an address with a name and password": (head(b"GET http://a:b@localhost/ HTTP/1.1"), 400),
    "an address of no host": (head(b"GET http:///health HTTP/1.1"), 400),
    "an address without a Host": (head(b"GET http://localhost/ HTTP/1.1", b"X: y"), 400),
    "an address and two Hosts": (head(b"GET http://a/ HTTP/1.1", b"Host: a", b"Host: b"), 400),
    "a fragment": (head(b"GET /a#b HTTP/1.1"), 400),
    "a NUL in the target": (head(b"GET /\0 HTTP/1.1"), 400),
    "a NUL in a header": (head(b"GET / HTTP/1.1", b"X: a\0b"), 400),
    "a bare LF between headers": (b"GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n", 400),
    "a bare CR": (b"GET / HTTP/1.1\r\nX: a\rY: b\r\n\r\n", 400),
    "a head that ends earlier": (b"GET / HTTP/1.1\nX: a\n\nGET /hidden HTTP/1.1\r\n\r\n", 400),
    "a folded header": (b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", 400),
    "a header folded by a tab": (b"GET / HTTP/1.1\r\nX: a\r\n\tb\r\n\r\n", 400),
    "a space before the colon": (head(b"GET / HTTP/1.1", b"Content-Length : 5"), 400),
    "a header of no name": (head(b"GET / HTTP/1.1", b": 5"), 400),
    "too many headers": (head(b"GET / HTTP/1.1", *[b"x: y"] * 129), 431),
    "two lengths": (head(b"POST / HTTP/1.1", b"Content-Length: 5", b"Content-Length: 6"), 400),
    "a length twice": (head(b"POST / HTTP/1.1", b"Content-Length: 5", b"Content-Length: 5"), 400),
    "a signed length": (head(b"POST / HTTP/1.1", b"Content-Length: +5"), 400),
    "a hexadecimal length": (head(b"POST / HTTP/1.1", b"Content-Length: 0x5"), 400),
    "a length of a Python number": (head(b"POST / HTTP/1.1", b"Content-Length: 1_0"), 400),
    "an empty length": (head(b"POST / HTTP/1.1", b"Content-Length:"), 400),
    "a length of other digits": (head(b"POST / HTTP/1.1", "Content-Length: ٥".encode()), 400),
    "a length beyond all": (head(b"POST / HTTP/1.1", b"Content-Length: " + b"9" * 5000), 400),
    "a length and chunks": (head(b"POST / HTTP/1.1", b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400),
    "chunks of HTTP/1.0": (head(b"POST / HTTP/1.0", b"Transfer-Encoding: chunked"), 400),
    "chunks twice": (head(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    "compressed chunks": (head(b"POST / HTTP/1.1", b"Transfer-Encoding: gzip, chunked"), 400),
    "no coding": (head(b"POST / HTTP/1.1", b"Transfer-Encoding:"), 400),
    "identity": (head(b"POST / HTTP/1.1", b"Transfer-Encoding: identity"), 400),
    "chunked behind a control": (head(b"POST / HTTP/1.1", b"Transfer-Encoding: \x0bchunked"), 400),
}  # fmt: skip
