"""Drafts from what followed the last tokens where they occurred before: in the sequence's own text, and in answers that
others with the same `NewSlot.store` have finished.

A client's answers draft nobody else's, because how many drafts are accepted would tell of them; whoever makes the key
decides who shares. A sequence without a key neither reads nor adds.
"""

import math
from array import array
from collections.abc import Callable, Iterator
from operator import itemgetter

import numpy

from ...protocol.messages import NewSlot
from .answer_pages import AnswerPages
from .matches import LONGEST, VOTERS, WALK, longest, vote
from .proposer import NOTHING, Guess, Look

_PROMPT_END = 16  # tokens of the prompt that are kept with an answer, so that its beginning is found as well
_SURE = 3  # matches of the greatest length in the own text, at which others' answers aren't searched
# The length of a match, its place, and what returns so many tokens from a place on.
_Voter = tuple[int, int, Callable[[int, int], list[int]]]


class Suffix:
    name = "suffix"

    def __init__(
        self,
        max_tree_depth: int = 64,
        max_cached_requests: int | None = None,
        max_spec_factor: float = math.inf,
        min_token_prob: float = 0.1,
        most_bytes: int = 64 << 20,
    ) -> None:
        """Take vLLM's parameters: tokens of match and drafts, finished answers that are kept (None: as many as there
        is memory for), drafts for each matching token, and how likely a whole guess is to be right, at least.
        """
        self._max_tree_depth = max_tree_depth
        self._max_spec_factor = max_spec_factor
        self._min_token_prob = min_token_prob
        self._answers = AnswerPages(most_bytes, max_cached_requests) if max_cached_requests != 0 else None
        self._texts: dict[int, _Text] = {}

    def enter(self, slot: int, new: NewSlot) -> None:
        self._texts[slot] = _Text(new.store, max(0, new.num_prompt - _PROMPT_END))

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        text = self._texts.pop(slot, None)
        if self._answers is not None and text is not None and text.store:
            self._answers.add(text.store, tokens[text.kept_from :])

    def guess(self, looks: list[Look]) -> list[Guess]:
        return [self._guess(look) for look in looks]

    def _guess(self, look: Look) -> Guess:
        text = self._texts.get(look.slot) or _Text()
        if not text.is_beginning_of(look.tokens):
            text = _Text(text.store, text.kept_from)
        self._texts[look.slot] = text
        text.extend(look.tokens)
        last = text.tokens[-LONGEST:]
        end = int.from_bytes(last.tobytes(), "little")
        own = longest(memoryview(text.tokens).cast("B"), text.places(), end)
        found: list[_Voter] = [(length, place, text.following) for length, place in own]
        if self._answers is not None and text.store and not _is_sure(found):
            others = self._answers.matches(text.store, last, end)
            found += [(length, place, self._answers.following) for length, place in others]
            found.sort(key=itemgetter(0), reverse=True)
        if not found:
            return NOTHING
        most = self._most(look.most, found[0][0])
        voters = [(length, following(place, most)) for length, place, following in found[:VOTERS]]
        return vote(voters, most, self._min_token_prob)

    def _most(self, room: int, length: int) -> int:
        return max(0, min(room, self._max_tree_depth - length, int(min(room, self._max_spec_factor * length))))


def _is_sure(found: list[_Voter]) -> bool:
    return len(found) >= _SURE and found[_SURE - 1][0] == LONGEST


class _Text:
    """A text in which the places after each pair of tokens are linked, and those after each token; 0 ends a chain."""

    def __init__(self, store: bytes = b"", kept_from: int = 0) -> None:
        self.store = store
        self.kept_from = kept_from  # its tokens from there on will be an answer for others
        self.tokens = array("i", [-1] * LONGEST)  # so that each of them has as many before it
        self.after_pair: dict[int, int] = {}
        self.after_token: dict[int, int] = {}
        self.earlier_pair = array("i", [0] * LONGEST)  # by place
        self.earlier_token = array("i", [0] * LONGEST)

    def is_beginning_of(self, tokens: numpy.ndarray) -> bool:
        """Whether it may be: a history only grows, so its length and its last token tell."""
        num_seen = len(self.tokens) - LONGEST
        return num_seen <= len(tokens) and (not num_seen or self.tokens[-1] == tokens[num_seen - 1])

    def extend(self, tokens: numpy.ndarray) -> None:
        place, last = len(self.tokens), self.tokens[-1]
        pair = _pair(self.tokens[-2], last)
        new = tokens[place - LONGEST :]
        self.tokens.frombytes(new.tobytes())
        for token in new.tolist():
            self.earlier_pair.append(self.after_pair.get(pair, 0))
            self.earlier_token.append(self.after_token.get(last, 0))
            self.after_pair[pair] = self.after_token[last] = place
            pair, last = _pair(last, token), token
            place += 1

    def places(self) -> Iterator[int]:
        """Yield the places after the last pair of tokens, or the last token if the pair is new, from the latest on."""
        place, earlier = self.after_pair.get(_pair(self.tokens[-2], self.tokens[-1]), 0), self.earlier_pair
        if not place:
            place, earlier = self.after_token.get(self.tokens[-1], 0), self.earlier_token
        for _ in range(WALK):
            if not place:
                return
            yield place
            place = earlier[place]

    def following(self, place: int, most: int) -> list[int]:
        """Return the tokens from a place on; at the text's end its last stretch, from there, is taken to repeat."""
        following = self.tokens[place : place + most].tolist()
        while 0 < len(following) < most:
            following += following[: most - len(following)]
        return following


def _pair(first: int, second: int) -> int:
    return first << 32 | second
