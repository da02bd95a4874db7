"""Decides which tokens may follow in one sequence: first in its thought, which may have a limit, then by its grammar.

`certain` are the tokens that must follow the known ones; the state kept here is the one after them. So a step can be
planned with certain tokens that no step in flight samples. Which tokens are certain depends on the sequence alone,
never on how many of them a step had room for. If a call comes instead of the thought, it is free, and so is the
sequence.
"""

import time
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import NamedTuple, Protocol, TypeVar

from ...protocol.wire import mask_bytes
from .thoughts import ThoughtState

# Grammars may take half of the time in which the workers compute the next step, which delays nobody; at least this
# much.
_SHARE, _LEAST_SECONDS = 0.5, 0.008
# Beyond that, only constraints that were cheap recently may continue; beyond this multiple of it, none.
_CHEAP_SECONDS, _MOST = 0.0003, 4

Value = TypeVar("Value")


class GrammarMatcher(Protocol):
    """A grammar's state after some tokens (`matcher.py`)."""

    @property
    def error(self) -> str | None: ...

    @property
    def is_accepting(self) -> bool: ...

    @property
    def is_complete(self) -> bool: ...

    def fork(self) -> "GrammarMatcher": ...

    def take(self, tokens: list[int]) -> bool: ...

    def certain(self) -> list[int]: ...

    def mask(self, endings: list[int]) -> bytearray: ...


class TooExpensive:
    """The outcome for a grammar that would hold up the engine's loop; `remote.py` follows it."""


TOO_EXPENSIVE = TooExpensive()


class Busy(NamedTuple):
    """A client has waited too long for its grammar to be compiled; nothing is known about the grammar itself."""

    client: str
    why: str


def bits(byte: int, others: list[int], num_bytes: int) -> bytearray:
    """A mask filled with `byte`, in which the bits of a few other tokens are flipped."""
    found = bytearray([byte]) * num_bytes
    for token in others:
        found[token >> 3] ^= 1 << (token & 7)
    return found


class Constraint:
    __slots__ = (
        "_endings", "_matcher", "_num_bytes", "_thought", "_untouched", "certain", "error", "may_force", "seconds",
    )  # fmt: skip

    is_remote = False
    is_awaited = False  # its masks are computed at once

    def __init__(
        self,
        matcher: GrammarMatcher | None,
        thought: ThoughtState,
        endings: list[int],
        vocab_size: int,
        *,
        may_force: bool,  # whether certain tokens may be forced instead of sampled
    ) -> None:
        self._matcher = matcher
        self._thought = thought
        self._endings = endings
        self._num_bytes = mask_bytes(vocab_size)
        # The grammar's first state, kept in case the answer's beginning turns out to be the mark of a thought.
        self._untouched = matcher.fork() if matcher is not None and thought.may_begin else None
        self.may_force = may_force
        self.certain: deque[int] = deque()
        self.error: str | None = None
        self.seconds = 0.0  # recent processor time of one call
        self._extend()

    def fork(self) -> "Constraint":
        """A copy that looks ahead."""
        ahead = copy(self)
        ahead._matcher, ahead._untouched = (each and each.fork() for each in (self._matcher, self._untouched))
        ahead._thought, ahead.certain = self._thought.fork(), self.certain.copy()
        return ahead

    @property
    def is_over(self) -> bool:
        """Whether the sequence is free from here on."""
        return self._matcher is None and self._thought.is_over and not self.certain

    @property
    def is_complete(self) -> bool:
        """Whether only an end token may follow."""
        return not self.certain and self.completes

    @property
    def completes(self) -> bool:
        """Whether only an end token may follow the certain tokens."""
        return self._matcher is not None and self._thought.is_over and self._matcher.is_complete

    def binds(self, num_ahead: int) -> bool:
        """Whether the token after `num_ahead` unknown ones may be restricted."""
        return self._matcher is not None or bool(self.certain) or self._thought.may_be_used_up(num_ahead)

    def take(self, token: int) -> None:
        """Advance by a token of the answer."""
        if not self.certain:
            self._advance(token)
            self._extend()
        elif self.certain.popleft() != token:
            self.error = f"Token {token} came where another was certain."

    def mask(self, num_given: int) -> bytearray | None:
        """A bit for each token that may follow the known ones and `num_given` certain ones; None allows any."""
        if len(self.certain) > num_given:
            return self._bits(0x00, [self.certain[num_given]])
        if self._matcher is None:
            return None
        if self._thought.is_open:  # an answer must not end within its thought
            return self._bits(0xFF, self._endings)
        found = self._bits(0x00, []) if self._matcher.error else self._matcher.mask(self._endings)
        for token in self._thought.openers:
            found[token >> 3] |= 1 << (token & 7)
        self._note_error()
        return found

    def _bits(self, byte: int, others: list[int]) -> bytearray:
        return bits(byte, others, self._num_bytes)

    def _advance(self, token: int) -> None:
        thought, was_open = self._thought, self._thought.is_open
        thought.take(token)
        if self._matcher is None:
            return
        if thought.has_call:
            self._matcher = None
        elif was_open:
            if thought.is_over:
                self.certain.extend(thought.behind_closing())
        elif thought.is_open:
            self._matcher = self._untouched
        else:
            self._matcher.take([token])

    def _extend(self) -> None:
        """Append the tokens that must follow to `certain`, and advance the state past them."""
        for token in self._thought.closing():
            self.certain.append(token)
            self._thought.take(token)
        if self._matcher is not None and self._thought.is_over and (tokens := self._matcher.certain()):
            self._matcher.take(tokens)
            self.certain.extend(tokens)
        self._note_error()

    def _note_error(self) -> None:
        # While the mark of a thought may still follow, errors don't count: the grammar is tried again later.
        if self._matcher is not None and self._thought.is_over and self.error is None:
            self.error = self._matcher.error


class LoopBudget:
    """Bounds the time that grammars take of the engine's loop in a step, and moves expensive ones to the follower's
    process.

    It counts processor time rather than time on the clock, so that other load on the machine makes no difference.
    """

    def __init__(self) -> None:
        self._spent = 0.0
        self._share = _LEAST_SECONDS

    def begin_step(self, forward_time: float) -> None:
        """Reset the time spent; the next step is assumed to take about as long as the last."""
        self._spent = 0.0
        self._share = max(_LEAST_SECONDS, _SHARE * forward_time)

    def allows(self, constraint: Constraint) -> bool:
        if self._spent < self._share:
            return True
        return self._spent < _MOST * self._share and constraint.seconds < _CHEAP_SECONDS

    def timed(self, constraint: Constraint, work: Callable[..., Value], *arguments: object) -> Value:
        """Run `work` for a constraint and record its time."""
        start = time.thread_time()
        result = work(*arguments)
        seconds = time.thread_time() - start
        # Masks and tokens alternate, and masks take longer: a cheap token must not hide an expensive mask.
        constraint.seconds = max(seconds, constraint.seconds / 2)
        self._spent += seconds
        return result
