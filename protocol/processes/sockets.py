"""The connections between processes: an `Inbox` that one process reads, and `Outbox`es that others write to.

Each inbox is a ZeroMQ PULL socket at `<directory>/<name>`; a message is one msgspec struct. There is no high-water
mark: no message is ever dropped, and the front end bounds the number of requests. The only other file
that imports zmq is `engine/event_socket.py`.

Each frame begins with a mark of our protocol. A frame without it is not ours and is dropped. One of ours that can't be
decoded raises, because its reader would wait for it forever.
"""

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import msgspec
import zmq

from ..errors import EngineDeadError, PenstockError
from ..fingerprint import PROTOCOL

_OURS = b"penstock"
MARK = _OURS + bytes.fromhex(PROTOCOL)
# Far above any real message; a sender that announces more is disconnected before memory is allocated.
LONGEST_FRAME = 2 << 30

Received = TypeVar("Received")

_encoder = msgspec.msgpack.Encoder()
_log = logging.getLogger(__name__)


class Inbox(Generic[Received]):
    """Receives messages of the given union from any number of senders, in order for each sender."""

    def __init__(self, directory: Path, name: str, messages: Any) -> None:
        self.name = name
        self.decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(messages)
        self._has_dropped = False  # a frame that was not ours
        self.socket = _context().socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        self.socket.setsockopt(zmq.MAXMSGSIZE, LONGEST_FRAME)
        self.socket.bind(_address(directory, name))  # type: ignore[arg-type]  # pyzmq takes bytes, too, and is typed for str
        self._poller: zmq.Poller | None = None  # for the socket and the descriptors last watched with it
        self._watched: list[int] = []

    @overload
    def receive(self, timeout: None = None) -> Received: ...
    @overload
    def receive(self, timeout: float | None) -> Received | None: ...
    def receive(self, timeout: float | None = None) -> Received | None:
        """The next message; None after `timeout` seconds without one (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while timeout is None or self._has_message_within(timeout):
            if (message := self._taken()) is not None:
                return message
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        return None

    def receive_or(self, descriptors: list[int]) -> Received | None:
        """The next message; None if a descriptor becomes readable first."""
        if self._poller is None or self._watched != descriptors:
            self._watched, self._poller = list(descriptors), zmq.Poller()
            for polled in (self.socket, *descriptors):
                self._poller.register(polled, zmq.POLLIN)
        while True:
            if self._has_message():
                if (message := self._taken()) is not None:
                    return message
            elif all(ready is not self.socket for ready, _ in self._poller.poll()):
                return self.receive(0)

    def _taken(self) -> Received | None:
        """The received message; None if the frame is not ours."""
        frame = self.socket.recv()
        if not frame.startswith(_OURS):
            self._drop(frame)
            return None
        if not frame.startswith(MARK):
            raise EngineDeadError(
                f"A process that runs another version of Penstock speaks at the socket {self.name!r}. Reinstall the "
                "package, and check that only one copy of it is on the module search path."
            )
        try:
            return self.decoder.decode(memoryview(frame)[len(MARK) :])
        except Exception as error:  # wrong types or lengths, but also memory or recursion
            raise EngineDeadError(
                f"A message of {len(frame):,} bytes at the socket {self.name!r} can't be decoded: {error}. Its reader "
                "would wait forever, so the tree ends. Please report it."
            ) from error

    def _drop(self, frame: bytes) -> None:
        if not self._has_dropped:  # one log line, however many come
            self._has_dropped = True
            what = f"{len(frame):,} bytes that are no message of Penstock's came to the socket {self.name!r}"
            _log.warning("%s. They are dropped, and so are others like them.", what)

    def _has_message_within(self, seconds: float) -> bool:
        return self._has_message() or (seconds > 0 and bool(self.socket.poll(max(1, int(seconds * 1000)))))

    def _has_message(self) -> bool:
        # Check first: a receive that fails raises, which costs more than the message.
        return bool(int(self.socket.get(zmq.EVENTS)) & zmq.POLLIN)

    def close(self) -> None:
        self.socket.close(linger=0)


class Outbox:
    """Sends messages, from any thread, to the inbox of this name, which may not exist yet."""

    def __init__(self, directory: Path, name: str) -> None:
        self.socket = _context().socket(zmq.PUSH)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        # A sender that exits waits this long for its last messages (a failure, the last delta) to be sent.
        self.socket.setsockopt(zmq.LINGER, 500)
        self.socket.connect(_address(directory, name))  # type: ignore[arg-type]  # as above
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a message. After `close` it is dropped: the code that closed it reports that."""
        frame = encoded_frame(message)
        with self._lock:
            if not self.socket.closed:
                self.socket.send(frame)

    def close(self) -> None:
        with self._lock:
            self.socket.close()


def encoded_frame(message: Any) -> bytes:
    frame = MARK + _encoder.encode(message)
    if len(frame) > LONGEST_FRAME:
        raise PenstockError(f"A message of {len(frame):,} bytes is too long; {LONGEST_FRAME:,} are the most.")
    return frame


def frames_for(directory: Path, name: str) -> "zmq.Socket[bytes]":
    """The inbox of this name, for a process that hands its frames on as they are."""
    socket = _context().socket(zmq.PULL)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, LONGEST_FRAME)
    socket.bind(_address(directory, name))  # type: ignore[arg-type]  # as above
    return socket


def frames_to(directory: Path, name: str) -> "zmq.Socket[bytes]":
    """The way to the inbox of this name, for frames as they are."""
    socket = _context().socket(zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.LINGER, 500)
    socket.connect(_address(directory, name))  # type: ignore[arg-type]  # as above
    return socket


def close_sockets() -> None:
    """Call before a child exits: wait, within the bound above, until all messages are sent."""
    _context().destroy()


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    return zmq.Context.instance()


def _address(directory: Path, name: str) -> bytes:
    """The address, with the path in the system's bytes, which need not be UTF-8."""
    return b"ipc://" + os.fsencode(directory / name)
