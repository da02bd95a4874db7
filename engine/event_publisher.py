"""Publishes KV events: numbers the batches that `memory/events.py` gathers and hands them to a socket's thread.

A message has three frames: topic, sequence number, and an array `[time, events, rank]` in msgpack, as vLLM's. Nothing
here makes the loop wait. A batch for which there is no room is dropped, and the gap in the numbers tells readers.
"""

import logging
import time

import msgspec

from ..protocol.options.kv_events import KvEventsConfig
from .event_socket import EventSocket
from .memory.events import Event, KvEvents
from .memory.time_to_live import Clock

_EXPIRY_SECONDS = 1.0  # between two looks for blocks whose time is over
_log = logging.getLogger(__name__)


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Event]
    data_parallel_rank: int


class EventPublisher:
    def __init__(self, events: KvEvents, config: KvEventsConfig, clock: Clock = time.monotonic) -> None:
        self._events = events
        self._rank = config.rank
        self._clock = clock
        self._socket = EventSocket(config)
        self._encoder = msgspec.msgpack.Encoder()
        self._number = 0
        self._num_dropped = 0
        self._next_look = clock()

    @property
    def patience(self) -> float | None:
        """Seconds until blocks may have expired; None if none ever do."""
        return max(0.0, self._next_look - self._clock()) if self._events.may_expire else None

    def flush(self) -> None:
        """Send what has been gathered since the last call."""
        if self._events.may_expire and self._clock() >= self._next_look:
            self._events.drop_expired()
            self._next_look = self._clock() + _EXPIRY_SECONDS
        if not (events := self._events.take()):
            return
        frame = self._encoder.encode(Batch(time.time(), events, self._rank))
        if not self._socket.send(self._number, frame):
            if not self._num_dropped:
                _log.warning("KV events come faster than they can be sent; batches are dropped (max_queue_size).")
            self._num_dropped += 1
        self._number += 1

    def close(self) -> None:
        self._socket.close()
