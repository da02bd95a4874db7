"""Clients for benchmarks that cost little themselves: they count what arrives and look at nothing else."""

import http.client
import json
import selectors
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock import SamplingParams
from penstock.frontend.session.attached.connection import DaemonConnection
from penstock.protocol.attach import ATTACH_PROTOCOL, Ask, Attach, Attached, OutputDeltas, WireRequest
from penstock.protocol.wire import column

_TAKEN = 1 << 18
_EVENT = b"data: {"


def pieces_over_the_socket(address: Path, model: str, prompts: Sequence[Sequence[int]], tokens: int) -> int:
    """Have every prompt streamed, all at once; how many pieces came."""
    line = DaemonConnection(address)
    try:
        line.send(Attach(ATTACH_PROTOCOL, model, model, {}))
        if not isinstance(attached := line.receive(), Attached):
            raise RuntimeError(f"not attached: {attached}")
        requests = [
            WireRequest(number, 0, token_ids=column(prompt), is_streamed=True) for number, prompt in enumerate(prompts)
        ]
        line.send(Ask(requests, [SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)]))
        running, count = len(prompts), 0
        while running:
            if not isinstance(message := line.receive(), OutputDeltas):
                raise RuntimeError(f"no pieces: {message}")
            count += len(message.deltas)
            running -= sum(piece.finished for piece in message.deltas)
        return count
    finally:
        line.close()


def body_of(model: str, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
    return {
        "model": model, "prompt": list(prompt), "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
        "stream": True,
    }  # fmt: skip


def events_over_http(port: int, model: str, prompts: Sequence[Sequence[int]], tokens: int) -> int:
    """The same over HTTP, each on a connection of its own; how many events came, `[DONE]` not counted."""
    selector = selectors.DefaultSelector()
    for prompt in prompts:
        body = json.dumps(body_of(model, prompt, tokens)).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(head.encode() + body)
        selector.register(connection, selectors.EVENT_READ, _Reader(connection))
    count = 0
    while selector.get_map():
        for key, _ in selector.select():
            count += key.data.read()
            if key.data.is_over:
                selector.unregister(key.fileobj)
                key.data.connection.close()
    return count


class _Reader:
    """Counts the events of one stream, however they were cut on their way."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.is_over = False
        self._rest = b""  # may be the start of a mark

    def read(self) -> int:
        taken = self.connection.recv(_TAKEN)
        if not taken or (not self._rest and not taken.startswith(b"HTTP/1.1 200")):
            raise RuntimeError(f"the stream broke off: {taken[:300]!r}")
        seen = self._rest + taken
        self.is_over = b"[DONE]" in seen
        self._rest = seen[1 - len(_EVENT) :]
        return seen.count(_EVENT)


class Asker:
    """One kept connection, as a client of OpenAI's has it."""

    def __init__(self, port: int, model: str) -> None:
        self.model = model
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def until_first_event(self, prompt: Sequence[int], tokens: int) -> http.client.HTTPResponse:
        """Returns with the first event; `rest` reads the others."""
        body = json.dumps(body_of(self.model, prompt, tokens))
        self._connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read().decode())
        while not response.readline().startswith(b"data: {"):
            pass
        return response

    @staticmethod
    def rest(response: http.client.HTTPResponse) -> None:
        response.read()
