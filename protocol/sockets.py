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
        self._poller: zmq.Poller | None = None  # of the socket and the descriptors last watched with it
        self._watched: list[int] = []

    def receive(self, timeout: float | None = None) -> Any | None:
        """The next message; None when `timeout` seconds (None: no limit) have passed without one."""
        if timeout is not None and not self._has_message_within(timeout):
            return None
        return self.decoder.decode(self.socket.recv())

    def receive_or(self, descriptors: list[int]) -> Any | None:
        """The next message; None when there is none and one of the descriptors has become readable."""
        if self._poller is None or self._watched != descriptors:
            self._watched, self._poller = list(descriptors), zmq.Poller()
            for polled in (self.socket, *descriptors):
                self._poller.register(polled, zmq.POLLIN)
        while not self._has_message():
            if all(ready is not self.socket for ready, _ in self._poller.poll()):
                return self.receive(0)
        return self.decoder.decode(self.socket.recv())

    def _has_message_within(self, seconds: float) -> bool:
        return self._has_message() or (seconds > 0 and bool(self.socket.poll(max(1, int(seconds * 1000)))))

    def _has_message(self) -> bool:
        # Asked for, not tried: a receive that fails raises, which costs more than the message.
        return bool(self.socket.get(zmq.EVENTS) & zmq.POLLIN)

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
        """Dropped once this end is closed: whoever sends then hears of the end from who closed it."""
        with self._lock:
            if not self.socket.closed:
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
