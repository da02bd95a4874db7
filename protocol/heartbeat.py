"""Signs of life: a page of memory in which each child of a tree writes what it has taken and which steps it is in.

A child's line is written by the thread that does its work, in the very places where it works: `WatchedInbox` counts the
messages that it takes and answers pings as it meets them among these, and a worker notes where its steps begin and end.
That costs a few stores a message, and an idle process writes nothing. The front end reads the page whenever it likes.
Knows nothing of who looks, and of what follows from it.
"""

import mmap
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, overload

from .sockets import Inbox, Received
from .wire import Message

_LINE = 64  # bytes: a child's own cache line
_CELLS = _LINE // 8


class Ping(Message):
    """Front end → each child, which answers in its line of the page."""

    number: int


def line_of(role: str) -> int:
    """Of the page: the engine's, the detokenizer's, then those of the ranks ("worker 0")."""
    single = ("engine", "detokenizer")
    return single.index(role) if role in single else len(single) + int(role.split()[1])


class HeartbeatLine(NamedTuple):
    """What a child has written, a cell for each; times are nanoseconds of the monotonic clock."""

    taken: int  # messages
    answered: int  # the newest ping that it has met
    begun: int  # tokens of the steps that it has begun
    last_start: int  # of the newest of these
    done: int  # tokens of those that have ended
    last_end: int  # of the newest of these
    steps: int  # that have ended
    step_time: int  # that these took

    @property
    def step_tokens(self) -> int:
        """Of the steps that it is in; 0: none."""
        return self.begun - self.done

    @property
    def step_start(self) -> int:
        """Since when it has been in a step; of two, which overlap, one ended then."""
        return max(self.last_start, self.last_end)


_TAKEN, _ANSWERED, _BEGUN, _LAST_START, _DONE, _LAST_END, _STEPS, _STEP_TIME = range(_CELLS)


class Heartbeats:
    """The page, as the process that starts the children sees it."""

    def __init__(self, num_ranks: int) -> None:
        # Without a name: it ends with the processes that map it, and no disk can hold up who writes to it.
        self._file = open(os.memfd_create("penstock-heartbeats", os.MFD_CLOEXEC), "r+b", buffering=0)
        size = line_of(f"worker {num_ranks}") * _LINE
        self._file.truncate(size)
        self._cells = memoryview(mmap.mmap(self.descriptor, size)).cast("q")

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def read(self, role: str) -> HeartbeatLine:
        first = line_of(role) * _CELLS
        return HeartbeatLine(*self._cells[first : first + _CELLS])

    def close_descriptor(self) -> None:
        """Once the children have theirs."""
        self._file.close()

    def close(self) -> None:
        """Nobody writes any more. What stands in the page is kept; the page goes now, not when garbage is collected."""
        self.close_descriptor()
        self._cells = memoryview(bytes(self._cells)).cast("q")


class Heartbeat:
    """A child's own line. Steps may be ended by another thread than begins them: each cell has one writer."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells
        self._taken = self._answered = self._begun = self._done = self._num_steps = self._step_time = 0
        self._last_end = 0
        self._steps: deque[tuple[int, int]] = deque()  # tokens and start of those that have not ended

    @classmethod
    def of(cls, role: str, descriptor: int) -> "Heartbeat":
        """The line of that role; without a page it writes where nobody looks."""
        if descriptor < 0:
            return cls(memoryview(bytearray(_LINE)).cast("q"))
        page = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        os.close(descriptor)
        first = line_of(role) * _CELLS
        return cls(memoryview(page).cast("q")[first : first + _CELLS])

    def taken(self) -> None:
        self._taken += 1
        self._cells[_TAKEN] = self._taken

    def answer(self, ping: int) -> None:
        self._answered = max(ping, self._answered)
        self._cells[_ANSWERED] = self._answered

    def begin_step(self, num_tokens: int) -> None:
        now = time.monotonic_ns()
        num_tokens = num_tokens or 1  # a step is something also where it computes nothing
        self._steps.append((num_tokens, now))
        self._begun += num_tokens
        cells = self._cells
        cells[_LAST_START] = now
        cells[_BEGUN] = self._begun

    def end_step(self) -> None:
        """Of the oldest one; a step that was begun while another ran has its own time from that one's end on."""
        now = time.monotonic_ns()
        num_tokens, start = self._steps.popleft()
        self._step_time += now - max(start, self._last_end)
        self._last_end = now
        self._done += num_tokens
        self._num_steps += 1
        cells = self._cells
        cells[_LAST_END] = now
        cells[_STEPS] = self._num_steps
        cells[_STEP_TIME] = self._step_time
        cells[_DONE] = self._done


class WatchedInbox(Inbox[Received]):
    """The inbox of a child, in which it meets pings as well; nobody else sees these."""

    def __init__(self, directory: Path, name: str, messages: Any, heartbeat: Heartbeat) -> None:
        super().__init__(directory, name, messages | Ping)
        self._heartbeat = heartbeat

    @overload
    def receive(self, timeout: None = None) -> Received: ...
    @overload
    def receive(self, timeout: float | None) -> Received | None: ...
    def receive(self, timeout: float | None = None) -> Received | None:
        while type(message := super().receive(timeout)) is Ping:
            self._heartbeat.answer(message.number)
        if message is not None:
            self._heartbeat.taken()
        return message
