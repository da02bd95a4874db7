"""Earlier occurrences of a text's last tokens, and the guess that they make: each votes for what followed it.

A vote weighs the square of the match's length, against the doubt that something else follows than ever did. From the
second draft on only those vote that had the drafts before it, so the likelihoods are conditional ones; their matches
are longer by these drafts.
"""

from collections.abc import Iterable

import numpy

from ...protocol.wire import TOKEN_BYTES
from .proposer import Guess

LONGEST = 24  # tokens of a match that are compared; before a text stand as many that are none
_TOKEN_BITS = 8 * TOKEN_BYTES
WALK = 24  # occurrences that are compared
VOTERS = 6
_ENOUGH = 3  # matches of the greatest length: the walk begins with the latest ones, and no others are longer
# In the unit of votes. With it, guesses that were said to be right in so many of a hundred cases were right in about
# as many, over prose, code and JSON.
_DOUBT = 6.0
_UNLIKELY = 0.02  # that all drafts so far are right, at which a vote ends


def longest(tokens: memoryview, positions: Iterable[int], end: int) -> list[tuple[int, int]]:
    """Return how many of a text's last tokens stand before a position, and the position; the longest first, of equal
    ones the latest.

    `tokens` are bytes. So are the last tokens, read as the number `end`: with it the first token that differs is a bit.
    """
    found: list[tuple[int, int]] = []
    num_longest = 0
    for position in positions:
        difference = int.from_bytes(tokens[(position - LONGEST) * TOKEN_BYTES : position * TOKEN_BYTES], "little") ^ end
        found.append((LONGEST - 1 - (difference.bit_length() - 1) // _TOKEN_BITS, position))
        num_longest += not difference
        if num_longest == _ENOUGH:
            break
    found.sort(reverse=True)
    return found[:VOTERS]


def lengthened(
    text: numpy.ndarray, ends: numpy.ndarray, last: numpy.ndarray, length: int, most: int
) -> tuple[numpy.ndarray, int]:
    """Narrow down the places in `text` where `length` of the last tokens end to those where most of them do; return
    these, and how many tokens that are, up to `most`."""
    while length < most:
        longer = ends[ends > length]
        longer = longer[text[longer - length - 1] == last[-length - 1]]
        if not len(longer):
            break
        ends, length = longer, length + 1
    return ends, length


def vote(matches: Iterable[tuple[int, list[int]]], most: int, least_share: float) -> Guess:
    """Guess what most had next, given the length of each match and what followed it; of equal ones that of the first.

    The guess ends before a token that has less than `least_share` of the votes, and once it is unlikely as a whole.
    """
    sides: dict[tuple[int, ...], _Side] = {}
    for length, following in matches:
        if (side := sides.get(key := tuple(following))) is None:
            side = sides[key] = _Side(following)
        side.add(length)
    sides.pop((), None)
    tokens: list[int] = []
    likelihoods: list[float] = []
    voting = list(sides.values())
    chance = 1.0
    while len(voting) > 1 and len(tokens) < most and chance > _UNLIKELY:
        index = len(tokens)
        weights: dict[int, int] = {}
        for side in voting:
            token = side.following[index]
            weights[token] = weights.get(token, 0) + side.weight(index)
        best, votes = max(weights, key=weights.__getitem__), sum(weights.values())
        if weights[best] < least_share * votes:
            return Guess(tokens, likelihoods)
        tokens.append(best)
        likelihoods.append(likelihood := weights[best] / (votes + _DOUBT))
        chance *= likelihood
        voting = [side for side in voting if side.following[index] == best and len(side.following) > index + 1]
    if len(voting) == 1:  # all that still vote agree to the end
        [side] = voting
        likelihoods += side.likelihoods(len(tokens))
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

    def weight(self, index: int) -> int:
        """Return the sum of (length + index)²."""
        return self.squares + 2 * index * self.lengths + self.number * index * index

    def likelihoods(self, start: int) -> list[float]:
        """Return how likely each of its tokens from an index on is, where no others vote."""
        number, double, squares = self.number, 2 * self.lengths, self.squares + _DOUBT
        indices = range(start, len(self.following))
        return [1 - _DOUBT / (squares + double * index + number * index * index) for index in indices]
