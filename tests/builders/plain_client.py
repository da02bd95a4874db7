"""A client of the daemon that says whatever a test wants, a byte at a time if need be, and hears what it is told."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import psutil
from builders.daemon import RunningDaemon

from penstock import SamplingParams
from penstock.protocol.attach import (
    ATTACH_PROTOCOL,
    Ask,
    Attach,
    Attached,
    Declined,
    Failed,
    FromDaemon,
    OutputDelta,
    OutputDeltas,
    StillWorking,
    WireRequest,
    frame,
)

_decoder = msgspec.msgpack.Decoder(FromDaemon)
SECONDS = 30.0


class PlainClient:
    def __init__(self, daemon: RunningDaemon) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.fspath(daemon.address))
        self.socket.settimeout(SECONDS)
        self.socket_file = self.socket.makefile("rb")

    def send(self, sent: bytes | msgspec.Struct) -> "PlainClient":
        """Whoever is sent away meanwhile hears why by reading."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(sent if isinstance(sent, bytes) else frame(sent))
        return self

    def announce(self, length: int) -> "PlainClient":
        return self.send(struct.pack("<I", length))

    def hear(self) -> Any | None:
        """The next message that says more than that the daemon works; None at the end."""
        with suppress(ConnectionResetError):
            while len(header := self.socket_file.read(4)) == 4:
                (length,) = struct.unpack("<I", header)
                message = _decoder.decode(self.socket_file.read(length))
                if not isinstance(message, StillWorking):
                    return message
        return None

    def last_words(self) -> str:
        """Why it is sent away; empty where that isn't said."""
        said = ""
        while (message := self.hear()) is not None:
            if isinstance(message, Declined):
                said = message.failure.message
        return said

    def attach(self, model: str = "pocket") -> "PlainClient":
        self.send(Attach(ATTACH_PROTOCOL, model, model, {}))
        assert isinstance(self.hear(), Attached)
        return self

    def ask(self, *requests: WireRequest, params: Any = None) -> "PlainClient":
        return self.send(Ask(list(requests), [SamplingParams(max_tokens=2)] if params is None else params))

    def ends(self, count: int) -> list[OutputDelta | Failed]:
        """The last pieces of so many requests, in the order in which they come."""
        ended: list[OutputDelta | Failed] = []
        while len(ended) < count:
            message = self.hear()
            assert message is not None, f"the connection has ended, after {ended}"
            if isinstance(message, OutputDeltas):
                ended += [piece for piece in message.deltas if piece.finished]
            elif isinstance(message, Failed):
                ended.append(message)
            else:
                raise AssertionError(message)
        return ended

    def close(self) -> None:
        self.socket_file.close()
        self.socket.close()

    def __enter__(self) -> "PlainClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def grown_by_at_most(daemon: RunningDaemon, mebibytes: float) -> Iterator[None]:
    """The daemon's own memory, looked at when the block is left."""
    process = psutil.Process(daemon.status().pid)
    before = process.memory_info().rss
    yield
    grown = (process.memory_info().rss - before) / 2**20
    assert grown <= mebibytes, f"the daemon has grown by {grown:.1f} MiB"
