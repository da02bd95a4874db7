"""Compiles grammars beside the engine's loop, and keeps those that were asked for last.

Each is first tried in a process of its own (`trial.py`), which a hostile one may hang or break, and then compiled here,
by a thread with a stack that no grammar of the size let in can use up. Who asks twice waits for one compilation.
Knows nothing of requests. Called by the loop's thread only; `wake` tells the loop to `collect` what is there.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ...protocol.guided import Grammar
from .guide import TOO_DEAR, Matching, TooDear
from .trial import Trial

if TYPE_CHECKING:
    from .matcher import Vocabulary

_MOST_KEPT = 64
_MOST_CHARACTERS_KEPT = 8 << 20  # of source
_THREADS = 4  # so that a few grammars that take long don't hold up the others
# The library goes down a chain of rules by recursion, some 2 KB a rule, and 512 KB of text hold 60,000 rules. Memory is
# taken as it is used. A trial has half of it, so that what passes there passes here.
STACK_BYTES = 512 << 20

Outcome = Matching | TooDear | str  # a matcher at its beginning, or what is wrong


class Compiler:
    def __init__(self, tokenizer_folder: Path, vocab_size: int, wake: Callable[[], None]) -> None:
        self._folder = tokenizer_folder
        self._vocab_size = vocab_size
        self._wake = wake
        self._kept: OrderedDict[Grammar, Outcome] = OrderedDict()
        self._asked: set[Grammar] = set()
        self._done: SimpleQueue[tuple[Grammar, Outcome]] = SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._vocabulary: Vocabulary | None = None
        self._loading = threading.Lock()
        self._own = threading.local()  # each thread's trial

    def find(self, grammar: Grammar) -> Outcome | None:
        """What came of it; None: it is being compiled, and `collect` will give it."""
        if (outcome := self._kept.get(grammar)) is not None:
            self._kept.move_to_end(grammar)
        elif grammar not in self._asked:
            self._asked.add(grammar)
            self._submit(grammar)
        return outcome

    def collect(self) -> list[tuple[Grammar, Outcome]]:
        """Those that are there since the last call."""
        found = [self._done.get() for _ in range(self._done.qsize())]
        for grammar, outcome in found:
            self._asked.discard(grammar)
            self._kept[grammar] = outcome
        while len(self._kept) > _MOST_KEPT or sum(len(each.text) for each in self._kept) > _MOST_CHARACTERS_KEPT:
            self._kept.popitem(last=False)
        return found

    def _submit(self, grammar: Grammar) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
        usual = threading.stack_size(STACK_BYTES)  # the pool starts its threads as work is submitted
        try:
            self._pool.submit(self._compile, grammar)
        finally:
            threading.stack_size(usual)

    # --- the pool's threads ---------------------------------------------------------------------------------------

    def _compile(self, grammar: Grammar) -> None:
        try:
            outcome = self._outcome(grammar)
        except BaseException as error:  # the library's panics are no Exceptions
            outcome = f"It cannot be compiled ({type(error).__name__}: {str(error)[:200]})."
        self._done.put((grammar, outcome))
        self._wake()

    def _outcome(self, grammar: Grammar) -> Outcome:
        if not hasattr(self._own, "trial"):
            self._own.trial = Trial()
        if (fault := self._own.trial.fault(grammar)) is not None:
            return fault
        # Imported, and the vocabulary read, for the first grammar: who has none pays for none of this.
        from .matcher import IN_THE_LOOP, MOST, Matcher, Vocabulary

        with self._loading:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._folder, self._vocab_size)
        matcher = _warmed(Matcher.compiled(grammar, self._vocabulary, IN_THE_LOOP))
        if matcher.error is None:
            return matcher
        return _warmed(Matcher.compiled(grammar, self._vocabulary, MOST)).error or TOO_DEAR


def _warmed(matcher: Matching) -> Matching:
    """The first mask is the dearest, and its work is kept for all forks."""
    if matcher.error is None:
        matcher.mask([])
    return matcher
