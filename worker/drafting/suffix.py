"""Drafts from what followed the last tokens where they occurred before: in the sequence's own text, and in answers that
others with the same `NewSlot.store` have finished.

A client's answers draft nobody else's, because how many drafts are accepted would tell of them; whoever makes the key
decides who shares. A sequence without a key neither reads nor adds.
"""

from array import array
from collections.abc import Callable, Iterator
from operator import itemgetter

import numpy

from ...protocol.messages import NewSlot
from ...protocol.wire import values
from .answer_pages import AnswerPages
from .matches import LONGEST, VOTERS, WALK, longest, vote
from .proposer import NOTHING, Guess, Look

STORE_BYTES = 64 << 20  # of finished answers
_LEAD = 16  # tokens before an answer that are kept with it, so that its beginning is found as well
_SURE = 16  # tokens that match in the own text, at which others' answers aren't searched
# Tokens that a step waits for while texts are read. All looks share them evenly, but each reads what a step may add.
_READ_AT_MOST, _SHARE_AT_LEAST = 4_096, 32
_TEXT_AT_MOST = 32_768  # tokens at the end of a history that are read
_FURTHER_AT_MOST = 4_096  # tokens that come after these before the end is read anew
# The length of a match, its position, and what returns so many tokens from a position on.
_Voter = tuple[int, int, Callable[[int, int], list[int]]]


class Suffix:
    name = "suffix"

    def __init__(
        self,
        max_tree_depth: int = 64,
        max_cached_requests: int | None = None,
        max_spec_factor: float | None = None,
        min_token_prob: float = 0.1,
        most_bytes: int = STORE_BYTES,
    ) -> None:
        """Take vLLM's parameters: tokens of match and drafts, finished answers that are kept (None: as many as there
        is memory for), drafts for each matching token (None: any number), and the least share of a draft among what
        followed before.
        """
        self._max_tree_depth = max_tree_depth
        self._max_spec_factor = max_spec_factor
        self._min_token_prob = min_token_prob
        self._answers = AnswerPages(most_bytes, max_cached_requests) if max_cached_requests != 0 else None
        self._texts: dict[int, _Text] = {}

    def enter(self, slot: int, new: NewSlot) -> None:
        num_entered = len(values(new.token_ids))
        self._texts[slot] = _Text(new.store, num_entered, num_entered)

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        text = self._texts.pop(slot)
        # What a sequence brings along was kept when it left before, or is its prompt.
        if self._answers is not None and text.store and len(tokens) > text.num_entered:
            self._answers.add(text.store, tokens[max(0, text.num_entered - _LEAD) :])

    def guess(self, looks: list[Look]) -> list[Guess]:
        share = max(_SHARE_AT_LEAST, _READ_AT_MOST // max(1, len(looks)))
        return [self._guess(look, share) for look in looks]

    def _guess(self, look: Look, num_read: int) -> Guess:
        text = self._text(look)
        last = _last(look.tokens)
        end = int.from_bytes(last.tobytes(), "little")
        found: list[_Voter] = []
        if text.read(look.tokens, num_read):
            own = longest(memoryview(text.tokens).cast("B"), text.positions(), end)
            found += [(length, position, text.following) for length, position in own]
        if self._answers is not None and text.store and not _is_sure(found):
            others = self._answers.matches(text.store, last, end)
            found += [(length, position, self._answers.following) for length, position in others]
            found.sort(key=itemgetter(0), reverse=True)
        if not found:
            return NOTHING
        most = self._most(look.most, found[0][0])
        voters = [(length, following(position, most)) for length, position, following in found[:VOTERS]]
        return vote(voters, most, self._min_token_prob)

    def _text(self, look: Look) -> "_Text":
        text, num_tokens = self._texts[look.slot], len(look.tokens)
        if num_tokens - text.start > _TEXT_AT_MOST + _FURTHER_AT_MOST:
            text = self._texts[look.slot] = _Text(text.store, text.num_entered, num_tokens)
        return text

    def _most(self, room: int, length: int) -> int:
        """Return how many drafts may follow a match of this length."""
        most = min(room, self._max_tree_depth - length)
        return max(0, most if self._max_spec_factor is None else int(min(most, self._max_spec_factor * length)))


def _is_sure(found: list[_Voter]) -> bool:
    return bool(found) and found[0][0] >= _SURE


def _last(tokens: numpy.ndarray) -> "array[int]":
    """Return a history's last tokens, after -1s if there are fewer than `LONGEST`."""
    last = array("i", tokens[-LONGEST:].tobytes())
    return last if len(last) == LONGEST else array("i", [-1] * (LONGEST - len(last))) + last


class _Text:
    """The end of a history, in which the positions after each pair of tokens are linked, and those after each token.

    0 ends a chain.
    """

    def __init__(self, store: bytes, num_entered: int, num_tokens: int) -> None:
        self.store = store
        self.num_entered = num_entered  # tokens of the history when the sequence entered its slot
        self.start = max(0, num_tokens - _TEXT_AT_MOST)  # of the text in its history
        self.tokens = array("i", [-1] * LONGEST)  # so that each of them has as many before it
        self.after_pair: dict[int, int] = {}
        self.after_token: dict[int, int] = {}
        self.earlier_pair = array("i", [0] * LONGEST)  # by position
        self.earlier_token = array("i", [0] * LONGEST)

    def read(self, history: numpy.ndarray, most: int) -> bool:
        """Read up to so many more tokens; return whether that is all of them."""
        position, last = len(self.tokens), self.tokens[-1]
        pair = _pair(self.tokens[-2], last)
        start = self.start + position - LONGEST
        new = history[start : start + most]
        self.tokens.frombytes(new.tobytes())
        for token in new.tolist():
            self.earlier_pair.append(self.after_pair.get(pair, 0))
            self.earlier_token.append(self.after_token.get(last, 0))
            self.after_pair[pair] = self.after_token[last] = position
            pair, last = _pair(last, token), token
            position += 1
        return start + len(new) == len(history)

    def positions(self) -> Iterator[int]:
        """Yield the positions after the last pair of tokens, or the last token if the pair is new, the latest first."""
        position, earlier = self.after_pair.get(_pair(self.tokens[-2], self.tokens[-1]), 0), self.earlier_pair
        if not position:
            position, earlier = self.after_token.get(self.tokens[-1], 0), self.earlier_token
        for _ in range(WALK):
            if not position:
                return
            yield position
            position = earlier[position]

    def following(self, position: int, most: int) -> list[int]:
        """Return the tokens from a position on; at the text's end its last stretch, from there, is taken to repeat."""
        following = self.tokens[position : position + most].tolist()
        while 0 < len(following) < most:
            following += following[: most - len(following)]
        return following


def _pair(first: int, second: int) -> int:
    return first << 32 | second
