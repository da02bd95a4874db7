"""Requests as no proper client sends them: bytes on a socket, and what came back within a bounded time."""

import socket
import time
from contextlib import suppress
from dataclasses import dataclass


def connected(port: int, timeout: float = 10.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def spoken(port: int, sent: bytes, timeout: float = 10.0) -> bytes:
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


def closes_within(connection: socket.socket, seconds: float) -> bool:
    """Whether the server ends the connection by itself."""
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


def request(body: bytes, path: str = "/v1/completions", **headers: str) -> bytes:
    lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body)),
             "Connection": "close"}  # fmt: skip
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
