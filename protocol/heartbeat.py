"""Signs of life: a page of memory in which each child of a tree writes what it has taken and which steps it is in.

A child's line is written by the thread that does its work, in the very places where it works: `WatchedInbox` counts the
messages that it takes and answers pings as it meets them among these, and a worker notes where its steps begin and end.
That costs a few stores a message, and an idle process writes nothing. The front end reads the page whenever it likes.
Knows nothing of who looks, and of what follows from it.
"""

import mmap
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from .sockets import Inbox
from .wire import Message

_LINE = 64  # bytes: a child's own cache line
_CELLS = _LINE // 8
_TAKEN, _ANSWERED, _BEGUN, _DONE, _STEPS, _STEP_TIME, _STEP_START = range(7)


class Ping(Message):
    """Front end → each child, which answers in its line of the page."""

    number: int


def line_of(role: str) -> int:
    """Of the page: the engine's, the detokenizer's, then those of the ranks ("worker 0")."""
    single = ("engine", "detokenizer")
    return single.index(role) if role in single else len(single) + int(role.split()[1])


class Signs(NamedTuple):
    """What a child has written."""

    taken: int  # messages
    answered: int  # the newest ping that it has met
    begun: int  # tokens of the steps that it has begun
    done: int  # tokens of those that have ended
    steps: int  # that have ended
    step_time: int  # nanoseconds that these took
    step_start: int  # of the oldest step that it is in, on the monotonic clock

    @property
    def step_tokens(self) -> int:
        """Of the steps that it is in; 0: none."""
        return self.begun - self.done


class Heartbeats:
    """The page, as the process that starts the children sees it."""

    def __init__(self, num_ranks: int) -> None:
        # Without a name: it ends with the processes that map it, and no disk can hold up who writes to it.
        self.descriptor = os.memfd_create("penstock-heartbeats", os.MFD_CLOEXEC)
        size = line_of(f"worker {num_ranks}") * _LINE
        os.ftruncate(self.descriptor, size)
        self._cells = memoryview(mmap.mmap(self.descriptor, size)).cast("q")

    def read(self, role: str) -> Signs:
        first = line_of(role) * _CELLS
        return Signs(*self._cells[first : first + len(Signs._fields)])

    def close_descriptor(self) -> None:
        """Once the children have theirs."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Heartbeat:
    """A child's own line. Steps may be ended by another thread than the one that begins them."""

    def __init__(self, cells: Any) -> None:
        self._cells = cells
        self._steps: deque[tuple[int, int]] = deque()  # tokens and start of those that have not ended
        self._last_end = 0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, role: str, descriptor: int) -> "Heartbeat":
        """The line of that role; without a page it writes where nobody looks."""
        if descriptor < 0:
            return cls([0] * _CELLS)
        page = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        os.close(descriptor)
        first = line_of(role) * _CELLS
        return cls(memoryview(page).cast("q")[first : first + _CELLS])

    def taken(self) -> None:
        self._cells[_TAKEN] += 1

    def answer(self, ping: int) -> None:
        self._cells[_ANSWERED] = max(ping, self._cells[_ANSWERED])

    def begin_step(self, num_tokens: int) -> None:
        num_tokens = max(num_tokens, 1)  # a step is something also where it computes nothing
        with self._lock:
            now = time.monotonic_ns()
            if not self._steps:
                self._cells[_STEP_START] = now
            self._steps.append((num_tokens, now))
            self._cells[_BEGUN] += num_tokens

    def end_step(self) -> None:
        """Of the oldest one; a step that was begun while another ran has its own time from that one's end on."""
        with self._lock:
            now = time.monotonic_ns()
            num_tokens, start = self._steps.popleft()
            cells = self._cells
            cells[_STEP_TIME] += now - max(start, self._last_end)
            cells[_STEPS] += 1
            cells[_STEP_START] = self._last_end = now
            cells[_DONE] += num_tokens


class WatchedInbox(Inbox):
    """The inbox of a child, in which it meets pings as well; nobody else sees these."""

    def __init__(self, directory: Path, name: str, messages: Any, heartbeat: Heartbeat) -> None:
        super().__init__(directory, name, messages | Ping)
        self._heartbeat = heartbeat

    def receive(self, timeout: float | None = None) -> Any | None:
        while type(message := super().receive(timeout)) is Ping:
            self._heartbeat.answer(message.number)
        if message is not None:
            self._heartbeat.taken()
        return message
