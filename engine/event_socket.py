"""A socket that publishes numbered frames to anybody outside the tree, and repeats recent ones on request.

It is ZeroMQ as vLLM's readers expect it: PUB sends `topic, number, frame`; a reader that missed some asks the ROUTER at
the second address with the first number that it lacks, and gets them the same way, ended by an empty frame with the
number -1. A thread owns both sockets, so nothing that readers do or leave undone reaches the sender.
"""

import errno
import logging
import os
import socket
import stat
import threading
from collections import deque
from contextlib import suppress

import zmq

from ..protocol.errors import ConfigError
from ..protocol.options.kv_events import NAME, KvEventsConfig
from .event_replays import NUMBER_BYTES, QUEUED, Kept, Replays

_log = logging.getLogger(__name__)

# A reader sends subscriptions and numbers; one that announces more is disconnected.
_LONGEST_REQUEST = 4096
_CLOSE_SECONDS = 2.0


class EventSocket:
    def __init__(self, config: KvEventsConfig) -> None:
        self._topic = config.topic.encode()
        self._kept: Kept = deque(maxlen=config.buffer_steps)
        # A context of its own, because it ends with its thread and not with the tree's sockets.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._files: list[str] = []  # of sockets with a path; ZeroMQ would leave them behind
        try:
            self._published = self._opened(zmq.PUB, "endpoint", config.endpoint, config.hwm)
            self._replay = None
            if config.replay_endpoint is not None:
                self._replay = self._opened(zmq.ROUTER, "replay_endpoint", config.replay_endpoint, QUEUED)
        except BaseException:
            self._remove_files()
            self._context.destroy(linger=0)
            raise
        self._queue, self._input = self._context.socket(zmq.PUSH), self._context.socket(zmq.PULL)
        self._queue.setsockopt(zmq.SNDHWM, config.max_queue_size)
        self._input.setsockopt(zmq.RCVHWM, 1)
        self._input.bind("inproc://events")
        self._queue.connect("inproc://events")
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        self._thread.start()

    def send(self, number: int, frame: bytes) -> bool:
        """Pass a frame on; False if there is no room for it. Never waits."""
        try:
            self._queue.send_multipart((number.to_bytes(NUMBER_BYTES), frame), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Send what is queued, within a bound, and give the addresses back."""
        try:
            self._queue.setsockopt(zmq.SNDTIMEO, int(_CLOSE_SECONDS * 1000))
            self._queue.send(b"")
        except zmq.Again:
            return  # the thread is stuck; the process ends without it
        self._thread.join(_CLOSE_SECONDS)
        self._queue.close(linger=0)

    def _opened(self, kind: int, name: str, address: str, most: int) -> "zmq.Socket[bytes]":
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.SNDHWM, most)
        opened.setsockopt(zmq.MAXMSGSIZE, _LONGEST_REQUEST)
        opened.setsockopt(zmq.LINGER, 0)
        opened.setsockopt(zmq.IPV6, "[" in address)
        try:
            _require_free(address)
            opened.bind(address)
            if address.startswith("ipc://"):
                self._files.append(address.removeprefix("ipc://"))
        except (OSError, zmq.ZMQError) as error:
            # An address of another machine, whose reader waits there for engines to connect.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.ENODEV) or kind != zmq.PUB:
                raise ConfigError(
                    f"{NAME}: the {name} {address} can't be opened ({error.strerror}). Give one that is free, and each "
                    "model one of its own."
                ) from error
            opened.connect(address)
        return opened

    def _run(self) -> None:
        replays = None if self._replay is None else Replays(self._replay, self._topic, self._kept)
        poller = zmq.Poller()
        for each in filter(None, (self._input, self._replay)):
            poller.register(each, zmq.POLLIN)
        try:
            while True:
                ready = [each for each, _ in poller.poll(None if replays is None else replays.patience)]
                if self._input in ready and not self._pass_on():
                    return
                if replays is not None and self._replay in ready:
                    replays.take()
                if replays is not None:
                    replays.go_on()
        except Exception:
            _log.exception("KV events are no longer published")
        finally:
            self._remove_files()  # while they are open: a path that is free may be another's at once
            for each in filter(None, (self._input, self._published, self._replay)):
                each.close()

    def _pass_on(self) -> bool:
        """Publish the next frame; False if there comes none any more."""
        number, *rest = self._input.recv_multipart()
        if not rest:
            return False
        self._published.send_multipart((self._topic, number, rest[0]))
        # One copy, which all readers' queues share.
        self._kept.append((number, zmq.Frame(rest[0])))
        return True

    def _remove_files(self) -> None:
        for path in self._files:
            with suppress(OSError):
                os.unlink(path)


def _require_free(address: str) -> None:
    """Raise if a path is a file, or a socket that somebody listens at: ZeroMQ would delete either."""
    path = address.removeprefix("ipc://")
    if path == address or not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX) as listener, suppress(ConnectionRefusedError):
        listener.setblocking(False)
        with suppress(BlockingIOError):  # it listens and accepts nobody
            listener.connect(path)
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
