"""Heartbeats: a page of memory in which each child of a tree counts its messages and records its steps.

The thread that does a child's work also writes its line: `WatchedInbox` counts the messages that it takes and answers
pings among them, and a worker records the start and end of its steps. That costs a few stores a message, and an idle
process writes nothing. The front end reads the page whenever it likes.
"""

import mmap
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, overload

from ..wire import Message
from .sockets import Inbox, Received

_LINE = 64  # bytes: a child's own cache line
_CELLS = _LINE // 8


class Ping(Message):
    """Front end → each child, which answers in its line of the page."""

    number: int


def line_of(role: str) -> int:
    """The index of a role's line: those of single processes, then those of the ranks ("worker 0")."""
    single = ("engine", "detokenizer", "link")
    return single.index(role) if role in single else len(single) + int(role.split()[1])


class HeartbeatLine(NamedTuple):
    """A child's line, one cell for each field; times are nanoseconds of the monotonic clock."""

    taken: int  # messages
    answered: int  # the newest ping that it has answered
    begun: int  # tokens of all steps begun
    last_start: int  # when the newest of these began
    done: int  # tokens of all steps ended
    last_end: int  # when the newest of these ended
    steps: int  # number of steps ended
    step_time: int  # their total time

    @property
    def step_tokens(self) -> int:
        """Tokens of the steps in progress; 0 if there are none."""
        return self.begun - self.done

    @property
    def step_start(self) -> int:
        """When its current step began. Steps may overlap: a second one counts from the first one's end."""
        return max(self.last_start, self.last_end)


class Vitals(NamedTuple):
    """Whether a rank on another machine could have worked, as seen there: a second line of the page for each rank."""

    pid: int = 0
    chance: int = 0  # nanoseconds in which it could have worked, added up
    missed: int = 0  # nanoseconds for which nothing on its machine has made progress
    is_stopped: int = 0
    is_traced: int = 0


_TAKEN, _ANSWERED, _BEGUN, _LAST_START, _DONE, _LAST_END, _STEPS, _STEP_TIME = range(_CELLS)


class Heartbeats:
    """The page, as the process that starts the children sees it."""

    def __init__(self, num_ranks: int) -> None:
        # A memfd: it vanishes with the processes that map it, and no disk can block a writer.
        self._file = open(os.memfd_create("penstock-heartbeats", os.MFD_CLOEXEC), "r+b", buffering=0)
        self._num_ranks = num_ranks
        size = line_of(f"worker {2 * num_ranks}") * _LINE
        self._file.truncate(size)
        self._cells = memoryview(mmap.mmap(self.descriptor, size)).cast("q")

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def read(self, role: str) -> HeartbeatLine:
        first = line_of(role) * _CELLS
        return HeartbeatLine(*self._cells[first : first + _CELLS])

    def vitals(self, rank: int) -> Vitals:
        first = line_of(f"worker {self._num_ranks + rank}") * _CELLS
        return Vitals(*self._cells[first : first + len(Vitals._fields)])

    def close_descriptor(self) -> None:
        """Close the descriptor, once the children have inherited theirs."""
        self._file.close()

    def close(self) -> None:
        """Keep the page's last content and unmap it now, rather than at garbage collection."""
        self.close_descriptor()
        self._cells = memoryview(bytes(self._cells)).cast("q")


class CopiedLines:
    """Lines of ranks on other machines, which one child copies into the page."""

    def __init__(self, descriptor: int, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._cells = memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size)).cast("q")

    def write(self, rank: int, line: HeartbeatLine, vitals: Vitals) -> None:
        """Times in `line` are ages, since clocks differ between machines."""
        now = time.monotonic_ns()
        line = line._replace(last_start=now - line.last_start, last_end=now - line.last_end)
        for number, values in ((rank, line), (self._num_ranks + rank, vitals)):
            first = line_of(f"worker {number}") * _CELLS
            for cell, value in enumerate(values, first):
                self._cells[cell] = value


def aged(line: HeartbeatLine) -> HeartbeatLine:
    """The line with ages instead of times."""
    now = time.monotonic_ns()
    return line._replace(last_start=now - line.last_start, last_end=now - line.last_end)


class Heartbeat:
    """A child's own line. One thread may begin steps and another end them: each cell has one writer."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells
        self._taken = self._answered = self._begun = self._done = self._num_steps = self._step_time = 0
        self._last_end = 0
        self._steps: deque[tuple[int, int]] = deque()  # tokens and start of the steps in progress

    @classmethod
    def of(cls, role: str, descriptor: int) -> "Heartbeat":
        """The line of a role; without a page, a line that nobody reads."""
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
        num_tokens = num_tokens or 1  # count a step without tokens, too
        self._steps.append((num_tokens, now))
        self._begun += num_tokens
        cells = self._cells
        cells[_LAST_START] = now
        cells[_BEGUN] = self._begun

    def end_step(self) -> None:
        """End the oldest step. A step that began during another one counts from that one's end."""
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
    """The inbox of a child: counts its messages, and answers pings without returning them."""

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
