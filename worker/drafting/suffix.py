"""Drafts from the sequence's own text: what followed the last tokens where they occurred before.

A text is read once, each look taking in the tokens that are new: of each token and of each pair of tokens it keeps the
latest place where it ended, and of each place the one before it. Walking back along these links finds the occurrences
of the last tokens; how far each of them matches is compared token by token. The walks are bounded, so a text of one
token repeated is no slower than others.
"""

import numpy

from ...protocol.messages import NewSlot
from .proposer import Guess, Look
from .votes import Match, vote

_WALK = 32  # occurrences that are compared
_LONGEST = 24  # tokens of a match that are compared
_ENOUGH = 4  # matches of that length: they are the latest, and no others are longer
_VOTERS = 12


class Suffix:
    name = "suffix"

    def __init__(self) -> None:
        self._texts: dict[int, _Text] = {}

    def enter(self, slot: int, new: NewSlot) -> None:
        self._texts[slot] = _Text()

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        self._texts.pop(slot, None)

    def guess(self, looks: list[Look]) -> list[Guess]:
        return [self._guess(look) for look in looks]

    def _guess(self, look: Look) -> Guess:
        text = self._texts.get(look.slot)
        if text is None or not text.is_beginning_of(look.tokens):
            text = self._texts[look.slot] = _Text()
        text.extend(look.tokens)
        return vote(text.matches(look.most), look.most)


class _Text:
    """A text in which the places after each pair of tokens are linked, and those after each token; -1 ends a chain."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.after_pair: dict[int, int] = {}
        self.after_token: dict[int, int] = {}
        self.earlier_pair: list[int] = []  # by place
        self.earlier_token: list[int] = []

    def is_beginning_of(self, tokens: numpy.ndarray) -> bool:
        """Whether it may be: a history only grows, so its length and its last token tell."""
        num_seen = len(self.tokens)
        return num_seen <= len(tokens) and (not num_seen or self.tokens[-1] == tokens[num_seen - 1])

    def extend(self, tokens: numpy.ndarray) -> None:
        known, place = self.tokens, len(self.tokens)
        last = known[-1] if place else -1
        pair = _pair(known[-2], last) if place > 1 else -1
        for token in tokens[place:].tolist():
            self.earlier_pair.append(self.after_pair.get(pair, -1))
            self.earlier_token.append(self.after_token.get(last, -1))
            self.after_pair[pair] = self.after_token[last] = place
            known.append(token)
            pair, last = _pair(last, token), token
            place += 1

    def matches(self, most: int) -> list[Match]:
        """Return the longest matches of the text's end, the longest first and of equal ones the latest."""
        tokens = self.tokens
        end = len(tokens)
        if end < 2:
            return []
        place, earlier = self.after_pair.get(_pair(tokens[-2], tokens[-1]), -1), self.earlier_pair
        if place < 0:
            place, earlier = self.after_token.get(tokens[-1], -1), self.earlier_token
        found: list[tuple[int, int]] = []
        num_longest = 0
        for _ in range(_WALK):
            if place < 0 or num_longest == _ENOUGH:
                break
            length, longest = 1, min(_LONGEST, place)
            while length < longest and tokens[place - 1 - length] == tokens[end - 1 - length]:
                length += 1
            num_longest += length == _LONGEST
            found.append((length, place))
            place = earlier[place]
        found.sort(reverse=True)
        return [Match(length, self._following(place, most)) for length, place in found[:_VOTERS]]

    def _following(self, place: int, most: int) -> list[int]:
        """Return the tokens from a place on; at the text's end its last stretch, from there, is taken to repeat."""
        following = self.tokens[place : place + most]
        while 0 < len(following) < most:
            following += following[: most - len(following)]
        return following


def _pair(first: int, second: int) -> int:
    return first << 32 | second
