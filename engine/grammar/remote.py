"""Follows, in another process, sequences whose grammars are too expensive for the engine's loop.

Such a sequence isn't planned until its next mask is here. So it takes part in fewer steps and costs the others nothing,
but it gets the same tokens. A job that exceeds the process's limits ends its own sequence; a new process follows the
others again from their beginning. All of this runs on the loop's thread, except for the thread that waits for the
process; `wake` tells the loop to `collect` its reports.
"""

import itertools
import threading
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import msgspec

from ...protocol.errors import PenstockError
from ...protocol.processes.bounded_process import BoundedProcess, Bounds, JobDiedError
from ...protocol.wire import mask_bytes
from .calls import Guide
from .constraint import bits
from .round_robin import RoundRobin

# `nice`: the workers go first. `cpu_seconds`: a new process takes all tokens of a sequence in one job.
_BOUNDS = Bounds(cpu_seconds=10, memory_bytes=2 << 30, wall_seconds=120.0, nice=5)


class SequenceStart(msgspec.Struct, array_like=True):
    """The data that the process needs to begin following a sequence."""

    folder: str
    vocab_size: int
    guide: Guide


class FollowJob(msgspec.Struct, array_like=True):
    number: int
    start: SequenceStart | None
    tokens: list[int]  # with a start, all of the sequence's tokens; otherwise those since its last job
    gone: list[int]  # numbers of sequences that have ended


class Report(msgspec.Struct, array_like=True):
    certain: list[int]
    mask: bytes | None  # for the token after the certain ones
    completes: bool
    error: str | None
    is_over: bool = False  # the sequence is free from here on


class RemoteConstraint:
    """Stands in for a `Constraint`: keeps the sequence's tokens and the process's last report."""

    __slots__ = (
        "_has_report", "_mask", "_num_bytes", "certain", "client", "completes", "error", "history", "is_gone",
        "is_over", "may_force", "start", "unsent",
    )  # fmt: skip

    is_remote = True

    def __init__(self, start: SequenceStart, history: "array[int]", *, may_force: bool, client: str = "") -> None:
        self.start = start
        self.client = client
        self.history = history  # all tokens so far; the sequence's own array
        self.may_force = may_force
        self.certain: deque[int] = deque()
        self.completes = self.is_over = False
        self.error: str | None = None
        self.is_gone = False
        self.unsent: list[int] = []  # tokens that the process doesn't have yet
        self._num_bytes = mask_bytes(start.vocab_size)
        self._has_report = False
        self._mask: bytes | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the report with the next mask is still to come."""
        return not self._has_report

    @property
    def guided_tokens(self) -> list[int]:
        """The tokens so far that it constrains."""
        return self.history[self.start.guide.start :].tolist()

    @property
    def is_complete(self) -> bool:
        """Whether only an end token may follow."""
        return self._has_report and not self.certain and self.completes

    def binds(self, num_ahead: int) -> bool:
        return True

    def take(self, token: int) -> None:
        """Advance by a token of the answer."""
        self.unsent.append(token)
        if not self.certain:
            self._has_report = False
        elif self.certain.popleft() != token:
            self.error = f"Token {token} came where another was certain."

    def mask(self, num_given: int) -> bytearray | bytes | None:
        """A bit for each token that may follow the known ones and `num_given` certain ones; None allows any."""
        if len(self.certain) > num_given:
            return bits(0x00, [self.certain[num_given]], self._num_bytes)
        return self._mask

    def take_in(self, report: Report) -> None:
        self._has_report = True
        self._mask = report.mask
        self.certain.extend(report.certain)
        self.completes, self.error, self.is_over = report.completes, report.error, report.is_over


class RemoteFollower:
    """Asks the process about awaited constraints (`follow`), and returns those with a report (`collect`)."""

    def __init__(self, tokenizer_folder: Path, vocab_size: int, wake: Callable[[], None]) -> None:
        self._folder = str(tokenizer_folder)
        self._vocab_size = vocab_size
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: RoundRobin[RemoteConstraint] = RoundRobin()
        self._done: SimpleQueue[tuple[RemoteConstraint, Report]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Used only by the thread.
        self._process = BoundedProcess("grammar", "penstock.engine.grammar.remote_process", _BOUNDS)
        self._generation = 0  # of the process that got the last job
        self._numbers: dict[RemoteConstraint, int] = {}  # of the sequences that the process knows
        self._count = itertools.count()

    def constraint(self, guide: Guide, client: str, history: "array[int]", *, may_force: bool) -> RemoteConstraint:
        start = SequenceStart(self._folder, self._vocab_size, guide)
        return RemoteConstraint(start, history, may_force=may_force, client=client)

    def follow(self, constraint: RemoteConstraint) -> None:
        with self._changed:
            self._waiting.put(constraint.client, constraint)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="remote-grammars", daemon=True)
            self._thread.start()

    def collect(self) -> list[RemoteConstraint]:
        heard = [self._done.get() for _ in range(self._done.qsize())]
        for constraint, report in heard:
            constraint.take_in(report)
        return [constraint for constraint, _ in heard]

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            constraint, tokens = self._next()
            if not constraint.is_gone:
                self._done.put((constraint, self._reported(constraint, tokens)))
                self._wake()

    def _next(self) -> tuple[RemoteConstraint, list[int]]:
        with self._changed:
            while (found := self._waiting.take()) is None:
                self._changed.wait()
        _, constraint = found
        # No tokens arrive before its report, since it isn't planned.
        tokens, constraint.unsent = constraint.unsent, []
        return constraint, tokens

    def _reported(self, constraint: RemoteConstraint, tokens: list[int]) -> Report:
        try:
            answer = self._process.ask_as(lambda generation: self._job(constraint, tokens, generation))
            return msgspec.msgpack.decode(answer, type=Report)
        except JobDiedError as error:
            return Report([], None, False, f"This grammar {error}. Use a simpler one.")
        except PenstockError as error:  # no process could be started
            return Report([], None, False, str(error))

    def _job(self, constraint: RemoteConstraint, tokens: list[int], generation: int) -> bytes:
        if generation != self._generation:  # a new process knows no sequence
            self._generation = generation
            self._numbers.clear()
        gone = [self._numbers.pop(each) for each in list(self._numbers) if each.is_gone]
        start = None
        if constraint not in self._numbers:
            self._numbers[constraint] = next(self._count)
            start, tokens = constraint.start, constraint.guided_tokens
        return msgspec.msgpack.encode(FollowJob(self._numbers[constraint], start, tokens, gone))
