"""Follows an answer's thought (not begun, open, or over), and counts its tokens so that it can be closed in time.

A thought begins at the prompt's end or with an opening mark at the answer's beginning, whose tokens aren't counted, and
ends with a closing mark. If a call may come instead, the call's mark ends it as well.
"""

from copy import copy

from ...protocol.parameters.guided import Thought

_LONGEST_MARK = 64  # in tokens
_NO_MARKS = Thought(is_open=False, openings=[], closings=[], forced=[])


class ThoughtState:
    __slots__ = ("_begun", "_limit", "_marks", "_recent", "count", "has_call", "is_open", "may_begin")

    def __init__(self, marks: Thought | None, limit: int | None) -> None:
        """`limit` bounds the thought's tokens; without marks there is no thought."""
        self._marks = marks = marks or _NO_MARKS
        self._limit = limit
        self._begun: list[int] = []  # the answer so far, while it may be an opening mark
        self._recent: list[int] = []
        self.is_open = marks.is_open
        self.may_begin = not marks.is_open and bool(marks.openings)
        self.has_call = False  # it ended with the mark of a call
        self.count = 0

    def fork(self) -> "ThoughtState":
        ahead = copy(self)
        ahead._begun = self._begun.copy()
        return ahead

    @property
    def is_over(self) -> bool:
        """Whether no thought is open and none may begin any more."""
        return not self.is_open and not self.may_begin

    @property
    def openers(self) -> list[int]:
        """The tokens that would begin or continue an opening mark."""
        if not self.may_begin:
            return []
        length = len(self._begun)
        return [mark[length] for mark in self._marks.openings if len(mark) > length and mark[:length] == self._begun]

    def may_be_used_up(self, num_ahead: int) -> bool:
        """Whether the limit may be reached within `num_ahead` more tokens."""
        return self._limit is not None and not self.is_over and self.count + num_ahead >= self._limit

    def take(self, token: int) -> None:
        if self.may_begin:
            self._begun.append(token)
            self.is_open = self._begun in self._marks.openings
            self.may_begin = not self.is_open and bool(self.openers)
        elif self.is_open:
            self.count += 1
            self._recent = [*self._recent[-_LONGEST_MARK:], token]
            self.has_call = self._ends_with(self._marks.calls)
            self.is_open = not self.has_call and not self._ends_with(self._marks.closings)

    def _ends_with(self, marks: list[list[int]]) -> bool:
        return any(self._recent[-len(mark) :] == mark for mark in marks)

    def closing(self) -> list[int]:
        """The tokens that must follow once the limit is reached."""
        is_used_up = self.is_open and self._limit is not None and self.count >= self._limit
        return self._marks.forced if is_used_up else []

    def behind_closing(self) -> list[int]:
        """The tokens between the closing mark and the answer."""
        forced = self._marks.forced
        for mark in self._marks.closings:
            for end in range(len(mark), len(forced) + 1):
                if forced[end - len(mark) : end] == mark:
                    return forced[end:]
        return []
