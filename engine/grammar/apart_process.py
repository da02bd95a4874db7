"""The process that follows sequences whose grammars take long (`apart.py`), one job after another."""

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ...protocol.guided import Grammar
from ...protocol.helper import serve
from .apart import Job, Report, Start
from .guide import Guide
from .matcher import Matcher, Vocabulary
from .pool import STACK_BYTES
from .thoughts import ThoughtState

_MOST_KEPT = 16  # grammars


class Followers:
    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None
        self._compiled: OrderedDict[Grammar, Matcher] = OrderedDict()
        self._guides: dict[int, Guide] = {}
        threading.stack_size(STACK_BYTES)
        self._thread = ThreadPoolExecutor(1)  # the main one's stack is the user's choice
        self._thread.submit(int).result()  # it has its stack before the process's memory is counted

    def work(self, content: bytes) -> bytes:
        job = msgspec.msgpack.decode(content, type=Job)
        return msgspec.msgpack.encode(self._thread.submit(self._report, job).result())

    def _report(self, job: Job) -> Report:
        for number in job.gone:
            self._guides.pop(number, None)
        try:
            if job.start is not None:
                self._guides[job.number] = self._begun(job.start)
            guide = self._guides[job.number]
            for token in job.tokens:
                guide.take(token)
            mask = guide.mask(len(guide.certain)) if guide.error is None else None
            return Report(list(guide.certain), None if mask is None else bytes(mask), guide.completes, guide.error)
        except BaseException as error:  # the library's panics are no Exceptions
            return Report([], None, False, f"It cannot be followed ({type(error).__name__}: {str(error)[:200]}).")

    def _begun(self, start: Start) -> Guide:
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(Path(start.folder), start.vocab_size)
        if (matcher := self._compiled.pop(start.grammar, None)) is None:
            matcher = Matcher.compiled(start.grammar, self._vocabulary)
        self._compiled[start.grammar] = matcher
        if len(self._compiled) > _MOST_KEPT:
            self._compiled.popitem(last=False)
        thought = ThoughtState(start.thought, start.thought_limit)
        return Guide(matcher.fork(), thought, start.endings, start.vocab_size, may_force=True)


if __name__ == "__main__":
    serve(lambda: Followers().work)
