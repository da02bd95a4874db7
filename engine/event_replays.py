"""Repeats kept frames to readers that ask for them, each as fast as it reads.

ZeroMQ keeps a few frames for a reader; the next ones follow when it has taken some. So readers that never read cost
next to nothing, however many there are, and don't hold up others. Nothing tells when a reader has taken a frame, so
each is tried again after a pause, which is short for those that read.
"""

import errno
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

import zmq

QUEUED = 32  # frames that wait for one reader
NUMBER_BYTES = 8
END = (-1).to_bytes(NUMBER_BYTES, signed=True)
_MOST_REQUESTS = 8  # of one reader; further ones get no answer
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.5

Kept = deque[tuple[bytes, zmq.Frame]]  # numbers and frames, in order


class Replay:
    """The rest of the replays that one reader gets."""

    def __init__(self) -> None:
        self.numbers: deque[bytes] = deque()  # from which on, for each of its requests
        self.pause = _SHORTEST_PAUSE
        self.due = 0.0  # when it is tried next


class Replays:
    def __init__(self, socket: "zmq.Socket[bytes]", topic: bytes, kept: Kept) -> None:
        self._socket = socket
        # A full queue and a reader that is gone are errors, instead of frames that are lost.
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._topic = topic
        self._kept = kept
        self._readers: dict[bytes, Replay] = {}

    @property
    def patience(self) -> int | None:
        """Milliseconds until a reader is tried again; None if none waits for anything."""
        if not self._readers:
            return None
        due = min(replay.due for replay in self._readers.values())
        return max(0, int((due - time.monotonic()) * 1000 + 0.999))

    def take(self) -> None:
        """Take in a request. What is no such request gets no answer."""
        reader, *request = self._socket.recv_multipart()
        if len(request) == 2 and not request[0] and len(request[1]) == NUMBER_BYTES:
            replay = self._readers.setdefault(reader, Replay())
            if len(replay.numbers) < _MOST_REQUESTS:
                replay.numbers.append(request[1])

    def go_on(self) -> None:
        """Send each reader that is due as much as it takes, within a bound."""
        now = time.monotonic()
        for reader, replay in list(self._readers.items()):
            if replay.due <= now and not self._send_some(reader, replay, now):
                del self._readers[reader]

    def _send_some(self, reader: bytes, replay: Replay, now: float) -> bool:
        """Returns whether more is left to be sent."""
        num_sent = 0
        try:
            for message, following in self._messages(replay.numbers):
                self._socket.send_multipart((reader, b"", *message), zmq.NOBLOCK, copy=False)
                num_sent += 1
                if following is None:
                    replay.numbers.popleft()
                else:
                    replay.numbers[0] = following
                if num_sent == QUEUED:
                    break
        except zmq.ZMQError as error:
            if error.errno != errno.EAGAIN:
                return False  # the reader is gone
        replay.pause = _SHORTEST_PAUSE if num_sent else min(2 * replay.pause, _LONGEST_PAUSE)
        replay.due = now + replay.pause
        return bool(replay.numbers)

    def _messages(self, numbers: deque[bytes]) -> Iterator[tuple[tuple[bytes | zmq.Frame, ...], bytes | None]]:
        """Answer a reader's requests, each with the number to go on from; None: its first request is answered."""
        while numbers:
            # Numbers are big-endian, so their bytes have their order.
            for index in range(bisect_left(self._kept, numbers[0], key=lambda each: each[0]), len(self._kept)):
                number, frame = self._kept[index]
                yield (self._topic, number, frame), _after(number)
            yield (b"", END, b""), None


def _after(number: bytes) -> bytes:
    return (int.from_bytes(number) + 1).to_bytes(NUMBER_BYTES)
