"""Clients that would fill a server's memory or take all of its places, each bounded in what it sends.

None of them needs a key.
"""

import selectors
import socket
import time
from contextlib import suppress

from builders.raw_http import connected

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH_ELSEWHERE = b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"
CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_TRAILER = b"x-trailer: " + b"y" * 100 + b"\r\n"


def sent_until_refused(connection: socket.socket, piece: bytes, most: int, seconds: float = 10.0) -> int:
    """How many bytes the server takes, `most` at most, before it ends the connection or stops reading."""
    connection.settimeout(seconds)
    sent = 0
    with suppress(OSError):
        while sent < most:
            sent += connection.send(piece)
    return sent


def endless_trailers(port: int, most: int) -> int:
    with connected(port) as connection:
        connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\n")
        return sent_until_refused(connection, _TRAILER * 500, most)


def pipelined(port: int, request: bytes, count: int, *, reads: bool, seconds: float = 60.0) -> int:
    """Send so many requests as fast as they are taken; how many answers came. One that doesn't read gets none."""
    with connected(port) as connection, selectors.DefaultSelector() as selector:
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0))
        left, answers, end = memoryview(request * count), 0, time.monotonic() + seconds
        with suppress(OSError):
            while (left or reads) and answers < count and time.monotonic() < end:
                for _, ready in selector.select(1.0):
                    if ready & selectors.EVENT_READ:
                        if not (piece := connection.recv(1 << 20)):
                            return answers
                        answers += piece.count(b"HTTP/1.1 ")
                    if ready & selectors.EVENT_WRITE:
                        left = left[connection.send(left[: 1 << 20]) :]
                        if not left:
                            selector.modify(connection, selectors.EVENT_READ)
        return answers


def after_a_reply(port: int, count: int, stray: bytes) -> list[socket.socket]:
    """Connections that were answered once, and then sent `stray`."""
    held = []
    for _ in range(count):
        with suppress(OSError):
            connection = connected(port, 5)
            held.append(connection)
            connection.sendall(HEALTH)
            if connection.recv(65536):
                connection.sendall(stray)
    return held


def slow_headers(port: int, count: int) -> list[socket.socket]:
    held = []
    for _ in range(count):
        with suppress(OSError):
            connection = connected(port, 5)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 30_000)
            held.append(connection)
    return held


def trickle(held: list[socket.socket]) -> None:
    """A byte more on each."""
    for connection in held:
        with suppress(OSError):
            connection.send(b"y")
