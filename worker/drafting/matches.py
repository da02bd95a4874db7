"""Earlier occurrences of a text's last tokens, and the guess that they make: each votes for what followed it.

A vote weighs the square of the match's length, against the doubt that something else follows than ever did. From the
second draft on only those vote that had the drafts before it, so the likelihoods are conditional ones; their matches
are longer by these drafts.
"""

from array import array
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy

from .proposer import Guess

LONGEST = 24  # tokens of a match that are compared; before a text stand as many that are none
_WALK = 24  # occurrences that are compared
_ENOUGH = 4  # matches of that length: the walk begins with the latest ones, and no others are longer
_VOTERS = 8
# In the unit of votes. With it, guesses that were said to be right in so many of a hundred cases were right in about
# as many, over prose, code and JSON.
_DOUBT = 6.0


class Match(NamedTuple):
    length: int  # of the last tokens, how many it has
    following: list[int]  # what came after them: a token at least


def longest(tokens: "array[int] | numpy.ndarray", places: Iterable[int], end: int) -> list[tuple[int, int]]:
    """Return how many of a text's last tokens stand before each place, with the place; the longest and latest first.

    `end` is the number that the last tokens are, read as bytes. With it the first token that differs is a bit.
    """
    found: list[tuple[int, int]] = []
    num_longest = 0
    for place in islice(places, _WALK):
        difference = int.from_bytes(tokens[place - LONGEST : place].tobytes(), "little") ^ end
        length = LONGEST - 1 - (difference.bit_length() - 1) // 32
        found.append((length, place))
        num_longest += not difference
        if num_longest == _ENOUGH:
            break
    found.sort(reverse=True)
    return found[:_VOTERS]


def vote(matches: list[Match], most: int, least: float = 0.0) -> Guess:
    """Guess what most matches had next, and of equal ones the first; they are given with the longest first.

    While they disagree, the guess ends where it is less likely than `least` to be right as a whole.
    """
    sides: dict[tuple[int, ...], _Side] = {}
    for length, following in matches:
        if (side := sides.get(key := tuple(following))) is None:
            side = sides[key] = _Side(following)
        side.add(length)
    tokens: list[int] = []
    likelihoods: list[float] = []
    voting, whole = list(sides.values()), 1.0
    while len(voting) > 1 and len(tokens) < most:
        place = len(tokens)
        weights: dict[int, int] = {}
        for side in voting:
            token = side.following[place]
            weights[token] = weights.get(token, 0) + side.weight(place)
        best = max(weights, key=weights.__getitem__)
        likelihood = weights[best] / (sum(weights.values()) + _DOUBT)
        whole *= likelihood
        if whole < least:
            return Guess(tokens, likelihoods)
        tokens.append(best)
        likelihoods.append(likelihood)
        voting = [side for side in voting if side.following[place] == best and len(side.following) > place + 1]
    for side in voting[:1]:
        likelihoods += [1 - _DOUBT / (side.weight(place) + _DOUBT) for place in range(len(tokens), len(side.following))]
        tokens += side.following[len(tokens) :]
    return Guess(tokens, likelihoods)


class _Side:
    """Matches with the same tokens after them: their number, and the sums of their lengths and of the squares."""

    def __init__(self, following: list[int]) -> None:
        self.following = following
        self.number = self.lengths = self.squares = 0

    def add(self, length: int) -> None:
        self.number += 1
        self.lengths += length
        self.squares += length * length

    def weight(self, place: int) -> int:
        """Return the sum of (length + place)²."""
        return self.squares + 2 * place * self.lengths + self.number * place * place
