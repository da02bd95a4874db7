"""The arrows between processes: an `Inbox` that one process reads, `Outbox`es that others write to.

Each inbox is a ZeroMQ PULL socket at `<directory>/<name>`; a message is one msgspec struct. No high-water mark: what
is sent is never dropped, and the door (the front end) bounds what is submitted. The only file that imports zmq.
Knows nothing of what the messages mean.
"""

import threading
from pathlib import Path
from typing import Any

import msgspec
import zmq

_encoder = msgspec.msgpack.Encoder()


class Inbox:
    """Receives messages of the given union, from any number of senders, each sender's in its order."""

    def __init__(self, directory: Path, name: str, messages: Any) -> None:
        self.decoder = msgspec.msgpack.Decoder(messages)
        self.socket = _context().socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.bind(_address(directory, name))

    def receive(self, timeout: float | None = None) -> Any | None:
        """The next message; None when `timeout` seconds (None: no limit) have passed without one."""
        try:
            # A look before the poll: under load there nearly always is a message already.
            return self.decoder.decode(self.socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            if timeout == 0 or not self.socket.poll(None if timeout is None else max(1, int(timeout * 1000))):
                return None
            return self.decoder.decode(self.socket.recv())

    def receive_or(self, descriptors: list[int]) -> Any | None:
        """The next message; None when there is none and one of the descriptors has become readable."""
        while (message := self.receive(0)) is None:
            poller = zmq.Poller()
            poller.register(self.socket, zmq.POLLIN)
            for descriptor in descriptors:
                poller.register(descriptor, zmq.POLLIN)
            if all(ready is not self.socket for ready, _ in poller.poll()):
                return self.receive(0)
        return message

    def close(self) -> None:
        self.socket.close(linger=0)


class Outbox:
    """Sends messages, from any thread, to the inbox of that name, which may not exist yet."""

    def __init__(self, directory: Path, name: str) -> None:
        self.socket = _context().socket(zmq.PUSH)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        # A sender that exits waits that long for its last words (a failure, the last delta) to leave.
        self.socket.setsockopt(zmq.LINGER, 500)
        self.socket.connect(_address(directory, name))
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        with self._lock:
            self.socket.send(_encoder.encode(message))

    def close(self) -> None:
        with self._lock:
            self.socket.close()


def close_sockets() -> None:
    """Before a child exits: wait, within the bound above, until what was sent has left."""
    _context().destroy()


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    return zmq.Context.instance()


def _address(directory: Path, name: str) -> str:
    return f"ipc://{directory / name}"
