"""The threads that compile grammars. Clients take turns, and no client holds all threads.

A grammar that several clients wait for is compiled once, at the first of their turns; one that nobody waits for any
more is not compiled. A client without a name has the model to itself: it may wait for as many as it likes, and as long.
Knows nothing of how a grammar is compiled.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from ...protocol.guided import Grammar
from .round_robin import RoundRobin

Result = TypeVar("Result")

# So that a few grammars that take long don't hold up the others.
_THREADS = 4
# The library goes down a chain of rules by recursion, some 2 KB a rule, and 512 KB of text hold 60,000 rules. Memory is
# taken as it is used. A trial has half of it, so that what passes there passes here.
STACK_BYTES = 512 << 20
# Of one client: grammars, and characters of them.
_MOST_WAITING, _MOST_CHARACTERS = 16_384, 64 << 20
# A client that has had no turn for so long is told.
PATIENCE_SECONDS = 30.0


class Pool(Generic[Result]):
    def __init__(
        self,
        compile: Callable[[Grammar], Result],
        done: Callable[[Grammar, Result], None],
        refuse: Callable[[str, Grammar], None],
    ) -> None:
        """`refuse` hears of the client and the grammar that has waited too long. All are called by threads here."""
        self._compile = compile
        self._done = done
        self._refuse = refuse
        self._changed = threading.Condition()
        self._turns: RoundRobin[Grammar] = RoundRobin(lambda grammar: len(grammar.text))
        self._begun: dict[Grammar, str] = {}  # being compiled, for the client whose turn it was
        self._num_threads = self._num_idle = 0
        self._is_watched = False

    def add(self, client: str, grammar: Grammar) -> bool:
        """Whether there is room for it among those of the client."""
        with self._changed:
            if grammar in self._begun:
                return True
            size = self._turns.size_of(client) + len(grammar.text)
            if client and (self._turns.num_of(client) >= _MOST_WAITING or size > _MOST_CHARACTERS):
                return False
            self._turns.put(client, grammar, time.monotonic())
            if self._num_threads < _THREADS and self._num_idle < len(self._turns):
                self._num_threads += 1
                _start(self._run, STACK_BYTES)
            if client and not self._is_watched:
                self._is_watched = True
                _start(self._watch)
            self._changed.notify_all()
        return True

    def drop(self, client: str, grammar: Grammar) -> None:
        """The client doesn't wait for it any more."""
        with self._changed:
            self._turns.drop(client, grammar)

    # --- the threads ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            grammar = self._next()
            result = self._compile(grammar)
            with self._changed:  # before it is told: who asks again then is not to wait for what has been
                del self._begun[grammar]
                self._changed.notify_all()
            self._done(grammar, result)

    def _next(self) -> Grammar:
        with self._changed:
            self._num_idle += 1
            while (found := self._turns.take(time.monotonic(), self._may_begin)) is None:
                self._changed.wait()
            self._num_idle -= 1
            client, grammar = found
            self._turns.drop_all(grammar)
            self._begun[grammar] = client
            return grammar

    def _may_begin(self, client: str) -> bool:
        return not client or sum(each == client for each in self._begun.values()) < _THREADS - 1

    def _watch(self) -> None:
        """Tell clients that have no turn."""
        with self._changed:
            while True:
                now = time.monotonic()
                waits = [
                    (since + PATIENCE_SECONDS - now, client, grammar)
                    for since, client, grammar in self._turns.oldest()
                    if client
                ]
                overdue = [(client, grammar) for seconds, client, grammar in waits if seconds <= 0]
                for client, grammar in overdue:
                    self._turns.drop(client, grammar)
                    self._refuse(client, grammar)
                if not overdue:
                    self._changed.wait(min((seconds for seconds, *_ in waits), default=None))


def _start(work: Callable[[], None], stack_bytes: int = 0) -> None:
    usual = threading.stack_size(stack_bytes)
    try:
        # A daemon thread: what is stuck does not hold up the end of the process.
        threading.Thread(target=work, name="grammars", daemon=True).start()
    finally:
        threading.stack_size(usual)
