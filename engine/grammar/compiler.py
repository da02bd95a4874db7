"""Compiles grammars on threads next to the engine's loop, and caches the most recently used ones.

Each grammar is first tried in a separate process (`trial.py`), which a hostile one may hang or crash, and then compiled
here on a thread (`pool.py`) whose stack is large enough for any grammar of the permitted size. The heap of compiled
grammars is bounded: the least recently used are dropped. Requests with the same grammar wait for one compilation. Only
the loop's thread may call this; `wake` tells the loop to `collect` the results.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import PenstockError
from ...protocol.parameters.guided import Grammar
from ...protocol.processes.bounded_process import JobDiedError
from ...protocol.processes.heap import heap_bytes, trim_heap
from .constraint import TOO_EXPENSIVE, Busy, GrammarMatcher, TooExpensive
from .pool import PATIENCE_SECONDS, Pool, on_large_stack
from .trial import Trial, too_much

if TYPE_CHECKING:
    from .matcher import Vocabulary

_MOST_KEPT = 64
_MOST_CHARACTERS_KEPT = 8 << 20  # of grammar source
# The heap may grow by this much while there are grammars. The engine's other allocations count as well, but are small.
_MOST_HEAP_BYTES = 192 << 20
_ALWAYS_KEPT = 4

Outcome = GrammarMatcher | TooExpensive | str  # a matcher in its first state, or an error sentence


class Result(NamedTuple):
    outcome: Outcome
    is_kept: bool = True


class _ThreadLocal(threading.local):
    """Each compiling thread has its own trial process."""

    trial: Trial | None = None


class Compiler:
    def __init__(self, tokenizer_folder: Path, vocab_size: int, wake: Callable[[], None]) -> None:
        self._folder = tokenizer_folder
        self._vocab_size = vocab_size
        self._wake = wake
        self._kept: OrderedDict[Grammar, Outcome] = OrderedDict()
        self._asked: dict[Grammar, set[str]] = {}  # the clients that wait for each grammar
        self._done: SimpleQueue[tuple[Grammar, Result | Busy]] = SimpleQueue()
        self._pool = Pool(self._compile, self._tell, self._refuse)
        self._vocabulary: Vocabulary | None = None
        self._usual_heap: int | None = None  # in bytes, with the vocabulary and the first grammar
        self._loading = threading.Lock()
        self._own = _ThreadLocal()

    def find(self, grammar: Grammar, client: str = "") -> Outcome | Busy | None:
        """The outcome for a grammar; None if it is being compiled and will come with `collect`."""
        if (outcome := self._kept.get(grammar)) is not None:
            self._kept.move_to_end(grammar)
        elif client not in self._asked.get(grammar, ()):
            if not self._pool.add(client, grammar):
                return Busy(client, "Too many grammars of this client wait to be compiled. Ask again later.")
            self._asked.setdefault(grammar, set()).add(client)
        return outcome

    def leave(self, grammar: Grammar, client: str) -> None:
        """Note that no request of this client waits for the grammar any more."""
        if self._forget(grammar, client):
            self._pool.drop(client, grammar)

    def collect(self) -> list[tuple[Grammar, Outcome | Busy]]:
        """The outcomes since the last call; a `Busy` concerns only the client that it names."""
        results = [self._done.get() for _ in range(self._done.qsize())]
        return [(grammar, self._noted(grammar, result)) for grammar, result in results]

    def _noted(self, grammar: Grammar, result: Result | Busy) -> Outcome | Busy:
        if isinstance(result, Busy):
            self._forget(grammar, result.client)
            return result
        self._asked.pop(grammar, None)
        if result.is_kept:
            self._kept[grammar] = result.outcome
            while len(self._kept) > _MOST_KEPT or sum(len(each.text) for each in self._kept) > _MOST_CHARACTERS_KEPT:
                self._kept.popitem(last=False)
            self._shrink_heap()
        return result.outcome

    def _shrink_heap(self) -> None:
        """Drop old grammars until the heap's growth is within its bound, and return their memory to the system."""
        if self._usual_heap is None:
            self._usual_heap = heap_bytes()
        num_kept, most = len(self._kept), self._usual_heap + _MOST_HEAP_BYTES
        while len(self._kept) > _ALWAYS_KEPT and heap_bytes() > most:
            self._kept.popitem(last=False)
        if len(self._kept) < num_kept:
            trim_heap()

    def _forget(self, grammar: Grammar, client: str) -> bool:
        """Remove the client from those waiting; False if it did not wait."""
        if client not in (clients := self._asked.get(grammar, set())):
            return False
        clients.remove(client)
        if not clients:
            del self._asked[grammar]
        return True

    # --- the pool's threads ---------------------------------------------------------------------------------------

    def _compile(self, grammar: Grammar) -> Result:
        try:
            return Result(self._outcome(grammar))
        except JobDiedError as error:  # perhaps not the grammar's fault: someone may have killed the process
            return Result(too_much(error), is_kept=False)
        except PenstockError as error:  # no process could be started
            return Result(str(error), is_kept=False)
        except BaseException as error:  # the library's panics are not Exceptions
            return Result(f"It cannot be compiled ({type(error).__name__}: {str(error)[:200]}).")

    def _refuse(self, client: str, grammar: Grammar) -> None:
        why = f"Grammars of others have taken more than {PATIENCE_SECONDS:g} s. Ask again later."
        self._tell(grammar, Busy(client, why))

    def _tell(self, grammar: Grammar, result: Result | Busy) -> None:
        self._done.put((grammar, result))
        self._wake()

    def _outcome(self, grammar: Grammar) -> Outcome:
        if self._own.trial is None:
            self._own.trial = Trial()
        if (fault := self._own.trial.fault(grammar)) is not None:
            return fault
        # Imported, and the vocabulary read, with the first grammar, so that none of this costs anything without
        # grammars.
        from .matcher import IN_THE_LOOP, MOST, Matcher, Vocabulary

        with self._loading:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._folder, self._vocab_size)
        vocabulary = self._vocabulary
        matcher = on_large_stack(lambda: _warmed(Matcher.compiled(grammar, vocabulary, IN_THE_LOOP)))
        if matcher.error is None:
            return matcher
        return on_large_stack(lambda: _warmed(Matcher.compiled(grammar, vocabulary, MOST)).error) or TOO_EXPENSIVE


def _warmed(matcher: GrammarMatcher) -> GrammarMatcher:
    """Compute the first mask, the most expensive one; all forks share that work."""
    if matcher.error is None:
        matcher.mask([])
    return matcher
