"""Drafts by prompt lookup, with the parameters that `protocol/options/speculation.py` has from vLLM and FastDeploy.

What followed the same few tokens before is drafted: the longest n-gram at the end of the text that also occurs earlier
in it counts, and of its occurrences the first, as there. Nothing is kept between two looks, so each searches the text.
That is bounded: the last 32,768 tokens, and if their pairs repeat more than texts do, the first occurrences of the last
pair.
"""

import numpy

from ...protocol.messages import NewSlot
from .matches import lengthened
from .proposer import NOTHING, Guess, Look

_TEXT_AT_MOST = 32_768  # tokens at the end of a history that are searched
_PAIRS_AT_MOST = 1_024  # occurrences of the last two tokens that are compared further
_NARROWED = 16  # tokens that all of those are compared by; only so many of them are compared by more


class Ngram:
    name = "ngram"

    def __init__(self, prompt_lookup_min: int, prompt_lookup_max: int) -> None:
        self.shortest = prompt_lookup_min
        self.longest = prompt_lookup_max

    def enter(self, slot: int, new: NewSlot) -> None:
        """Do nothing: a look has all that is needed."""

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        """Do nothing, as nothing is kept."""

    def guess(self, looks: list[Look]) -> list[Guess]:
        return [self._guess(look.tokens, look.most) for look in looks]

    def _guess(self, tokens: numpy.ndarray, most: int) -> Guess:
        text = tokens[-_TEXT_AT_MOST:]
        after, length = self._longest_match(text)
        if length < self.shortest:
            return NOTHING
        drafts = text[after : after + most].tolist()
        return Guess(drafts, [1.0] * len(drafts))

    def _longest_match(self, text: numpy.ndarray) -> tuple[int, int]:
        """Return the position after the first of the longest matches, and the length of that, 0 if there is none."""
        # An occurrence ends before the text does.
        ends = text[:-1] == text[-1:]
        if not ends.any():
            return 0, 0
        pairs = ends[1:] & (text[:-2] == text[-2:-1])
        if self.longest == 1 or not pairs.any():
            return int(ends.argmax()) + 1, 1
        return self._longest_of(text, numpy.flatnonzero(pairs)[:_PAIRS_AT_MOST] + 2)

    def _longest_of(self, text: numpy.ndarray, after: numpy.ndarray) -> tuple[int, int]:
        """Return the same of the positions after the last two tokens."""
        after, length = lengthened(text, after, text, 2, min(self.longest, _NARROWED))
        if length < _NARROWED or self.longest == _NARROWED:
            return int(after[0]), length
        found = [(_length_of_match(text, position, self.longest), position) for position in after[:_NARROWED].tolist()]
        length, position = max(found, key=lambda match: match[0])  # of equal ones the first
        return position, length


def _length_of_match(text: numpy.ndarray, position: int, most: int) -> int:
    """Return how many of the text's last tokens, up to `most`, stand before a position."""
    count = min(position, most)
    differ = (text[position - count : position] != text[len(text) - count :])[::-1]
    return int(differ.argmax()) if differ.any() else count
