"""The threads that compile grammars. Clients take turns, and no client holds all threads.

A grammar that several clients wait for is compiled once, at the first of their turns; if nobody waits for it any more,
it is not compiled. A client without a name has the model to itself, so it may queue any number of grammars and wait for
any time.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from ...protocol.parameters.guided import Grammar
from .round_robin import RoundRobin

Result = TypeVar("Result")

# Several, so that a few slow grammars don't hold up the others.
_THREADS = 4
# The library recurses along a chain of rules, with some 2 KB of stack a rule, and 512 KB of text hold 60,000 rules.
# Only memory that is used gets allocated. A trial has half of this, so a grammar that passes there passes here.
STACK_BYTES = 512 << 20
# Limits for one client: waiting grammars, and their characters.
_MOST_WAITING, _MOST_CHARACTERS = 16_384, 64 << 20
# A client that has had no turn for this long is refused.
PATIENCE_SECONDS = 30.0
_starting = threading.Lock()  # the stack size is a setting of the whole process


class Pool(Generic[Result]):
    def __init__(
        self,
        compile: Callable[[Grammar], Result],
        done: Callable[[Grammar, Result], None],
        refuse: Callable[[str, Grammar], None],
    ) -> None:
        """`refuse` is called with a client and its grammar that has waited too long. Threads here call all three."""
        self._compile = compile
        self._done = done
        self._refuse = refuse
        self._changed = threading.Condition()
        self._turns: RoundRobin[Grammar] = RoundRobin(lambda grammar: len(grammar.text))
        self._begun: dict[Grammar, str] = {}  # being compiled, with the client whose turn it was
        self._num_threads = self._num_idle = 0
        self._is_watched = False

    def add(self, client: str, grammar: Grammar) -> bool:
        """Queue a grammar; False if the client has too many waiting."""
        with self._changed:
            if grammar in self._begun:
                return True
            size = self._turns.size_of(client) + len(grammar.text)
            if client and (self._turns.num_of(client) >= _MOST_WAITING or size > _MOST_CHARACTERS):
                return False
            self._turns.put(client, grammar, time.monotonic())
            if self._num_threads < _THREADS and self._num_idle < len(self._turns):
                self._num_threads += 1
                _start(self._run)
            if client and not self._is_watched:
                self._is_watched = True
                _start(self._watch)
            self._changed.notify_all()
        return True

    def drop(self, client: str, grammar: Grammar) -> None:
        """Note that the client no longer waits for the grammar."""
        with self._changed:
            self._turns.drop(client, grammar)

    # --- the threads ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            grammar = self._next()
            result = self._compile(grammar)
            with self._changed:  # before `done`: a new request for it must not wait for this one
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
        """Refuse clients that have had no turn for too long."""
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


def on_large_stack(work: Callable[[], Result]) -> Result:
    """Run work on a thread of its own. The stack memory that it used is returned to the system at its end."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # the library's panics are not Exceptions
            outcome.set_exception(error)

    with _starting:
        usual = threading.stack_size(STACK_BYTES)
        try:
            _start(run)
        finally:
            threading.stack_size(usual)
    return outcome.result()


def _start(work: Callable[[], None]) -> None:
    # A daemon thread: a hanging grammar must not delay the end of the process.
    threading.Thread(target=work, name="grammars", daemon=True).start()
