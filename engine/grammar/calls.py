"""Tool calls: finds where an answer begins one, and constrains it until the call's end.

`CallWatch` looks for the marks with which calls begin, once the answer's thought is over. From such a mark on, a
`CallConstraint` holds the sequence, which is free again after the call.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from ...protocol.messages import Prompt
from ...protocol.parameters.guided import CallGuide, Grammar, Thought
from ...protocol.wire import column
from .constraint import Constraint, GrammarMatcher
from .thoughts import ThoughtState


class KnownTokens(Protocol):
    """The known tokens of a sequence, including its prompt's."""

    num_known: int

    @property
    def num_prompt(self) -> int: ...

    def packed_tokens(self, start: int, end: int) -> bytes: ...


class Guide(msgspec.Struct, array_like=True, frozen=True):
    """The grammar and thoughts that hold a sequence: for its whole answer, or for a call in it."""

    grammar: Grammar | None
    thought: Thought | None
    thought_limit: int | None
    endings: list[int]
    start: int = 0  # the index in the answer at which it begins
    is_call: bool = False

    @property
    def is_final(self) -> bool:
        """Whether it holds the sequence to its end."""
        may_be_free = self.is_call or self.grammar is None
        return not may_be_free and not (self.thought is not None and self.thought.calls)

    @classmethod
    def of_answer(cls, prompt: Prompt, endings: Iterable[int]) -> "Guide":
        return cls(prompt.grammar, prompt.thought, prompt.params.reasoning_max_tokens, list(endings))

    def constraint(self, matcher: GrammarMatcher | None, vocab_size: int, *, may_force: bool) -> Constraint:
        kind = CallConstraint if self.is_call else Constraint
        thought = ThoughtState(self.thought, self.thought_limit)
        return kind(matcher, thought, self.endings, vocab_size, may_force=may_force)


class CallConstraint(Constraint):
    """A constraint within a call; its endings are the marks that close the call, after which it is over."""

    __slots__ = ()

    def mask(self, num_given: int) -> bytearray | None:
        found = super().mask(num_given)
        # If the mark is an ordinary token of the vocabulary, it could occur in a string and would cut off the call.
        if found is not None and len(self.certain) <= num_given and self._matcher and not self._matcher.is_accepting:
            for token in self._endings:
                found[token >> 3] &= ~(1 << (token & 7))
        return found

    def _advance(self, token: int) -> None:
        if token in self._endings:
            self._matcher = None
        elif self._matcher is not None:
            self._matcher.take([token])

    def _extend(self) -> None:
        super()._extend()
        if self.error is not None or self._matcher is None or not self._matcher.is_complete:
            return
        if len(self._endings) == 1:
            self.certain.extend(self._endings)
        if len(self._endings) <= 1:
            self._matcher = None


class CallWatch:
    """Detects the calls of a sequence. Marks within a thought are text, and no call ends with one."""

    __slots__ = ("_last_tokens", "_marks", "_thought")

    def __init__(self, guides: list[CallGuide], thought: Thought | None) -> None:
        self._marks = [(column(mark), guide) for guide in guides for mark in guide.openings]
        self._last_tokens = {mark[-1] for guide in guides for mark in guide.openings}
        self._thought = ThoughtState(thought, None) if thought is not None else None

    def take(self, token: int) -> bool:
        """Take a token of the answer; True if a call may begin with it."""
        if self._thought is not None:
            self._thought.take(token)
            if self._thought.is_over:
                self._thought = None
        return token in self._last_tokens

    def end_thought(self) -> None:
        self._thought = None

    def begun(self, sequence: KnownTokens) -> Guide | None:
        """The guide of the call whose opening mark the sequence ends with; None if there is none."""
        if self._thought is not None and self._thought.is_open:
            return None
        end = sequence.num_known
        for mark, call in self._marks:
            if sequence.packed_tokens(max(0, end - len(mark) // 4), end) == mark:
                start = end - sequence.num_prompt
                return Guide(call.grammar, None, None, call.closings, start, is_call=True)
        return None
