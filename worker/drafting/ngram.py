"""Drafts by prompt lookup, with the parameters that `protocol/options/speculation.py` has from vLLM and FastDeploy.

What followed the same few tokens before is drafted: the longest n-gram at the end of the text that also occurs earlier
in it counts, and of its occurrences the first, as there. Nothing is kept between two looks: a text of 8,000 tokens is
searched in microseconds.
"""

import numpy

from ...protocol.messages import NewSlot
from .proposer import Guess, Look


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
        start = self._after_longest_match(tokens)
        drafts = tokens[start : start + most].tolist()
        return Guess(drafts, [1.0] * len(drafts))

    def _after_longest_match(self, tokens: numpy.ndarray) -> int:
        """Return the position after the match; the text's end if there is none."""
        # Positions after an occurrence of the last `length` tokens; an occurrence ends before the text does.
        after = numpy.flatnonzero(tokens[:-1] == tokens[-1:]) + 1
        length = 1
        while length < self.longest and len(after):
            further = after[after > length]
            further = further[tokens[further - length - 1] == tokens[-length - 1]] if len(further) else further
            if not len(further):
                break
            after, length = further, length + 1
        return int(after[0]) if len(after) and length >= self.shortest else len(tokens)
