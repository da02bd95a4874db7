"""A timeline of steps across the processes of a tree, in the format that Perfetto and chrome://tracing open.

Every process appends complete events to one file; the clock is the machine's monotonic one, so they line up. Appends
are small whole lines, which the kernel doesn't interleave. Without a file, `timed` leaves functions as they are, and a
span costs one attribute look-up. A process's start is in it as spans, too: one for each part of it (`reached`).
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

from ... import BEGAN
from .recording import ended, write_all

_LOG = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

START = "start"  # the category of a start's parts
_FLUSH_EVENTS = 200
_FLUSH_NANOSECONDS = 500_000_000


class Trace:
    """Spans of one process. If `path` is None, nothing is recorded."""

    def __init__(self, path: str | None, process: str) -> None:
        self._file: int | None = None
        self._events: list[str] = []
        self._flushed = time.monotonic_ns()
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._add({"name": "process_name", "ph": "M", "args": {"name": process}})
            self._reached = _spawned(), 0
            self._end_part("interpreter", *BEGAN)

    @staticmethod
    def create(path: str) -> None:
        """Begin a new file; the closing bracket of the list is optional in this format."""
        with open(path, "w") as file:
            file.write("[\n")

    def timed(
        self, name: str, function: Callable[Arguments, Result], **figures: Callable[Arguments, Any]
    ) -> Callable[Arguments, Result]:
        """The function with a span around each call, whose `figures` are computed of its arguments."""
        if self._file is None:
            return function

        def called(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            with self.span(name, **{key: figure(*arguments, **named) for key, figure in figures.items()}):
                return function(*arguments, **named)

        return called

    def span(self, name: str, **arguments: Any) -> AbstractContextManager[None]:
        return nullcontext() if self._file is None else self._timed(name, arguments)

    @contextmanager
    def _timed(self, name: str, arguments: dict[str, Any]) -> Iterator[None]:
        start = time.monotonic_ns()
        try:
            yield
        finally:
            end = time.monotonic_ns()
            self._add({"name": name, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, "args": arguments})
            if len(self._events) >= _FLUSH_EVENTS or end - self._flushed > _FLUSH_NANOSECONDS:
                self.flush()

    def reached(self, part: str) -> None:
        """End a part of this process's start, which began where the one before ended."""
        if self._file is not None:
            self._end_part(part, time.monotonic_ns(), time.process_time_ns())

    def _end_part(self, part: str, now: int, processor: int) -> None:
        """`processor` is this process's time on processors so far."""
        start, before = self._reached
        self._reached = now, processor
        figures = {"processor_ms": round((processor - before) / 1e6, 3)}
        event = {"name": part, "cat": START, "ph": "X", "ts": start / 1e3, "dur": (now - start) / 1e3, "args": figures}
        self._add(event)

    def _add(self, event: dict[str, Any]) -> None:
        self._events.append(json.dumps({**event, "pid": os.getpid(), "tid": threading.get_native_id()}))

    def flush(self) -> None:
        if self._file is not None and self._events:
            try:
                write_all(self._file, "".join(line + ",\n" for line in self._events).encode())
            except OSError as error:  # a full disk costs the timeline, not the steps
                _LOG.warning("%s", ended("trace", error))
                os.close(self._file)
                self._file = None
            self._events.clear()
            self._flushed = time.monotonic_ns()

    def close(self) -> None:
        """Write what is left, and record nothing from now on; safe to call twice."""
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _spawned() -> int:
    """When this process was made, on the monotonic clock; the kernel counts in hundredths of a second."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
    return time.monotonic_ns() - age
