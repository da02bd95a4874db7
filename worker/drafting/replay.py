"""Drafts from what an earlier run answered to the same request: the tokens that `NewSlot.expected` has.

While the answer follows them, they are drafted one after another. Where it differs, tokens were replaced, inserted or
left out, and nobody knows yet which. The last few answered tokens are looked for in the expected ones, near where
both parted at first and now and then further away, and the longest match says where to go on. Until one is found, each
token is taken as a replacement of the expected one.

A look searches once, however many tokens are new to it, and each search is bounded, because a step waits for it.
"""

from itertools import accumulate
from operator import mul

import numpy

from ...protocol.messages import NewSlot
from .matches import lengthened
from .proposer import NOTHING, Guess, Look

# How likely the token after a match is to be right, by the number of tokens that match (none: replaced so far).
_AFTER_MATCH = (0.3, 0.45, 0.7, 0.85, 0.93)
_LEAST = 0.1  # a guess ends where it is less likely to be right as a whole
_LONGEST_MATCH = 8
# A match has to be the longer, the further away it is: within so many tokens of where the answer would be if tokens had
# only been replaced, as many have to match.
_REACH = ((8, 1), (64, 2))
# Once so many tokens differ, it is searched further away: as far as each of them allows, up to a bound.
_LOST, _FAR_MATCH = 16, 4
_FAR_EACH, _FAR_AT_MOST = 64, 16_384
_AGAIN = 8  # further tokens that differ, after which that is searched again


class Replay:
    name = "replay"

    def __init__(self) -> None:
        self._followers: dict[int, _Follower] = {}

    def enter(self, slot: int, new: NewSlot) -> None:
        self._followers.pop(slot, None)
        if new.expected:
            self._followers[slot] = _Follower(numpy.frombuffer(new.expected, numpy.int32), new.num_prompt)

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        self._followers.pop(slot, None)

    def guess(self, looks: list[Look]) -> list[Guess]:
        return [self._guess(look) for look in looks]

    def _guess(self, look: Look) -> Guess:
        follower = self._followers.get(look.slot)
        return NOTHING if follower is None else follower.guess(look.tokens, look.most)


class _Follower:
    """One answer's position in the expected tokens."""

    def __init__(self, expected: numpy.ndarray, num_prompt: int) -> None:
        self.expected = expected
        self.num_prompt = num_prompt
        self.num_seen = num_prompt  # of the history
        self.next = 0  # the expected token that is likely to come
        self.matched = _LONGEST_MATCH  # tokens before it that are known to match; a beginning is as good as a match
        self.differing = 0  # tokens since the last one that was as expected
        self.parted = 0  # the expected token instead of which the first of them came
        self.far_search = _LOST  # the number of them at which it is searched further away
        self.trust = 0.9  # the share of expected tokens that came, of late

    def guess(self, tokens: numpy.ndarray, most: int) -> Guess:
        self._follow(tokens)
        drafts: list[int] = self.expected[self.next : self.next + most].tolist()
        likelihoods = [self.trust] * len(drafts)
        for index in range(min(len(drafts), len(_AFTER_MATCH) - self.matched)):
            likelihoods[index] *= _AFTER_MATCH[self.matched + index]
        whole = accumulate(likelihoods, mul)
        count = next((index for index, chance in enumerate(whole) if chance < _LEAST), len(drafts))
        return Guess(drafts[:count], likelihoods[:count])

    def _follow(self, tokens: numpy.ndarray) -> None:
        new = tokens[self.num_seen :]
        self.num_seen = len(tokens)
        num_same = _num_same(new, self.expected[self.next : self.next + len(new)])
        if num_same:
            self.next += num_same
            self.matched = min(self.matched + num_same, _LONGEST_MATCH)
            self.differing = 0
            self.trust = 1 - 0.9**num_same * (1 - self.trust)
        if num_same < len(new):
            self._part(len(new) - num_same)
            self._find(tokens[max(self.num_prompt, len(tokens) - _LONGEST_MATCH) :])

    def _part(self, count: int) -> None:
        """Take so many further tokens as replacements of the expected ones."""
        if not self.differing:
            self.trust *= 0.8
            self.parted = self.next
            self.far_search = _LOST
        self.differing += count
        self.next, self.matched = min(self.parted + self.differing, len(self.expected)), 0

    def _find(self, last: numpy.ndarray) -> None:
        """Go on after the longest match of the last answered tokens, and of several after the nearest one."""
        replaced = self.next
        for reach, shortest in (*_REACH, *self._far_reach()):
            start = max(0, replaced - reach)
            ends, length = _longest_match(self.expected[start : replaced + reach], last)
            if length >= max(shortest, self.matched + 1):
                self.next = start + int(ends[numpy.abs(start + ends - replaced).argmin()])
                self.matched = length

    def _far_reach(self) -> list[tuple[int, int]]:
        if self.differing < self.far_search:
            return []
        self.far_search = self.differing + _AGAIN
        return [(min(_FAR_EACH * self.differing, _FAR_AT_MOST), _FAR_MATCH)]


def _num_same(tokens: numpy.ndarray, others: numpy.ndarray) -> int:
    """Return at how many of the first places both are the same."""
    differ = tokens[: len(others)] != others
    return int(differ.argmax()) if differ.any() else len(others)


def _longest_match(text: numpy.ndarray, last: numpy.ndarray) -> tuple[numpy.ndarray, int]:
    """Return where in `text` the longest possible end of `last` ends, and how many tokens of it match."""
    ends = numpy.flatnonzero(text == last[-1]) + 1
    return lengthened(text, ends, last, 1, len(last)) if len(ends) else (ends, 0)
