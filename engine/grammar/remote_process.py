"""The process that follows sequences with expensive grammars for `remote.py`, one job after another."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ...protocol.parameters.guided import Grammar
from ...protocol.processes.bounded_process import serve
from .constraint import Constraint
from .matcher import Matcher, Vocabulary
from .pool import STACK_BYTES
from .remote import FollowJob, Report, SequenceStart

_MOST_KEPT = 16  # grammars


class FollowerProcess:
    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None
        self._compiled: OrderedDict[Grammar, Matcher] = OrderedDict()
        self._constraints: dict[int, Constraint] = {}
        threading.stack_size(STACK_BYTES)
        self._thread = ThreadPoolExecutor(1)  # the main thread's stack size is set by the user
        self._thread.submit(int).result()  # allocates its stack before the process's memory is bounded

    def work(self, content: bytes) -> bytes:
        job = msgspec.msgpack.decode(content, type=FollowJob)
        return msgspec.msgpack.encode(self._thread.submit(self._report, job).result())

    def _report(self, job: FollowJob) -> Report:
        for number in job.gone:
            self._constraints.pop(number, None)
        try:
            if job.start is not None:
                self._constraints[job.number] = self._begun(job.start)
            constraint = self._constraints[job.number]
            for token in job.tokens:
                constraint.take(token)
            mask = constraint.mask(len(constraint.certain)) if constraint.error is None else None
            bits = None if mask is None else bytes(mask)
            error, is_over = constraint.error, constraint.is_over
            return Report(list(constraint.certain), bits, constraint.completes, error, is_over)
        except BaseException as error:  # the library's panics are not Exceptions
            return Report([], None, False, f"It cannot be followed ({type(error).__name__}: {str(error)[:200]}).")

    def _begun(self, start: SequenceStart) -> Constraint:
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(Path(start.folder), start.vocab_size)
        if (grammar := start.guide.grammar) is None:
            raise ValueError("There is no grammar to follow.")
        if (matcher := self._compiled.pop(grammar, None)) is None:
            matcher = Matcher.compiled(grammar, self._vocabulary)
        self._compiled[grammar] = matcher
        if len(self._compiled) > _MOST_KEPT:
            self._compiled.popitem(last=False)
        return start.guide.constraint(matcher.fork(), start.vocab_size, may_force=True)


if __name__ == "__main__":
    serve(lambda: FollowerProcess().work)
