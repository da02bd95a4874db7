"""Chooses the tree that computes a request: the one that knows most of its prompt, unless that has much more to do.

Trees are numbers here, work is counted in tokens, and a prompt is the keys of its prefixes (`prefix_keys.py`). What a
tree knows is a guess, made from the prompts that it was given: the least recently used ones are forgotten as its KV
memory would forget them. A wrong guess costs time and changes no answer.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# A prompt token that a tree needn't compute is worth so many tokens of other work: computing it a second time takes
# memory from other prefixes, and a longer queue delays its own requests alone. It is worth twice as much where even the
# idlest tree has other work, which it would delay.
_REUSE = 2
_MOST_KEYS = 1 << 18  # of all trees together; a key takes about 250 bytes
# The expected length of an answer, until answers have ended; and how many of the last ones count.
_FIRST_LENGTH, _COUNTED_ANSWERS = 128.0, 64


class Work(NamedTuple):
    """What a tree was given with a request."""

    tree: int
    tokens: float
    life: int  # of the tree


@dataclass(slots=True)
class _Tree:
    capacity: int  # tokens that its KV memory holds
    known: OrderedDict[int, int]  # keys of prefixes, the least recently used first, and the tokens that each adds
    life: int = 0
    num_known: int = 0  # tokens


class Choice:
    """Any thread may call it. A tree is open while requests may be given to it."""

    def __init__(self, num_trees: int) -> None:
        self._lock = threading.Lock()
        self._trees = [_Tree(0, OrderedDict()) for _ in range(num_trees)]
        self._load = [math.inf] * num_trees  # tokens of work that each has not done yet; of a closed one: inf
        self._given = [0.0] * num_trees  # in all its time, which decides between trees with the same load
        self._holders: dict[int, int] = {}  # key → the trees that know it, a bit each
        self._open = 0  # a bit each
        self._most_keys = _MOST_KEYS // num_trees
        self._length, self._num_ended = _FIRST_LENGTH, 0

    @property
    def load(self) -> list[float]:
        return list(self._load)

    def open(self, tree: int, capacity: int) -> None:
        """Let a tree be chosen. It knows nothing yet, and its KV memory holds so many tokens."""
        with self._lock:
            others = [self._given[each] for each in _bits(self._open)]
            self._given[tree] = max(self._given[tree], min(others, default=0.0))
            self._trees[tree].capacity = capacity
            self._load[tree] = 0.0
            self._open |= 1 << tree

    def close(self, tree: int) -> None:
        """Choose it no more, and forget what it knew and had to do."""
        with self._lock:
            self._open &= ~(1 << tree)
            self._load[tree] = math.inf
            state = self._trees[tree]
            state.life += 1
            while state.known:
                self._drop_oldest(tree, state)

    def give(
        self, keys: Sequence[int], ends: Sequence[int], num_prompt: int, most_output: int, num_samples: int = 1
    ) -> Work | None:
        """Choose the tree for a request and count its work. None if no tree is open.

        `keys` are of the prompt's prefixes, which have so many tokens (`ends`).
        """
        with self._lock:
            if not self._open:
                return None
            matched = self._matched(keys, ends)
            tree = self._best(matched)
            tokens = num_prompt - matched.get(tree, 0) + num_samples * min(most_output, self._length)
            self._load[tree] += tokens
            self._given[tree] += tokens
            self._note(tree, keys, ends)
            return Work(tree, tokens, self._trees[tree].life)

    def end(self, work: Work, answer_length: int | None = None) -> None:
        """The work is done, or nobody wants it any more. `answer_length` is that of an answer that has come to its
        end, in tokens of a sample."""
        with self._lock:
            if answer_length is not None:
                self._num_ended = min(self._num_ended + 1, _COUNTED_ANSWERS)
                self._length += (answer_length - self._length) / self._num_ended
            if self._trees[work.tree].life == work.life:
                # Not below 0: fractions add up to a little more or less.
                self._load[work.tree] = max(0.0, self._load[work.tree] - work.tokens)

    def _best(self, matched: dict[int, int]) -> int:
        """The tree with the least load, where known tokens count as relief."""
        found = min(zip(self._load, self._given, range(len(self._load))))  # of those that know nothing, or not enough
        least = found[0]
        for tree, tokens in matched.items():
            relief = _REUSE * (tokens + min(tokens, least))
            found = min(found, (self._load[tree] - relief, self._given[tree], tree))
        return found[2]

    def _matched(self, keys: Sequence[int], ends: Sequence[int]) -> dict[int, int]:
        """How many tokens of a prompt each tree knows, without the trees that know none."""
        matched: dict[int, int] = {}
        holders, known = self._open, 0
        for key, end in zip(keys, ends):
            still = self._holders.get(key, 0) & holders
            if still != holders:
                if known:
                    matched.update(dict.fromkeys(_bits(holders & ~still), known))
                holders = still
                if not still:
                    return matched
            known = end
        if known:
            matched.update(dict.fromkeys(_bits(holders), known))
        return matched

    def _note(self, tree: int, keys: Sequence[int], ends: Sequence[int]) -> None:
        """Note that a tree is about to know these prefixes."""
        state, bit = self._trees[tree], 1 << tree
        known, holders = state.known, self._holders
        # The longest first: the ends of what is no longer used are forgotten before its beginning.
        for index in range(len(keys) - 1, -1, -1):
            key = keys[index]
            if key in known:
                known.move_to_end(key)
            else:
                known[key] = tokens = ends[index] - (ends[index - 1] if index else 0)
                state.num_known += tokens
                holders[key] = holders.get(key, 0) | bit
        while state.num_known > state.capacity or len(state.known) > self._most_keys:
            self._drop_oldest(tree, state)

    def _drop_oldest(self, tree: int, state: _Tree) -> None:
        key, tokens = state.known.popitem(last=False)
        state.num_known -= tokens
        if holders := self._holders[key] & ~(1 << tree):
            self._holders[key] = holders
        else:
            del self._holders[key]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
