"""Finds the answers of an earlier run by their keys, with 8 bytes for each answer and 8 for each key.

A key is a hash of a name or of a prompt. Only its upper half is kept, together with the answer's number. So a wrong
answer is found now and then, and whoever reads an answer compares its whole keys.
"""

from array import array
from collections.abc import Iterable

import numpy

_NUMBER_BITS = 32
_LOWER_HALF = (1 << _NUMBER_BITS) - 1
_MOST_FOUND = 8  # of many answers to one prompt


class AnswerIndex:
    """Add all answers, then `sort`, then `find`. An answer's number is that of its row."""

    def __init__(self) -> None:
        self.num_answers = 0
        self._offsets = array("Q")  # by number: where the answer is, plus one; 0 if there is none
        self._keys = array("Q")
        self._sorted = numpy.empty(0, numpy.uint64)

    def add(self, number: int, offset: int, keys: Iterable[int]) -> None:
        """Add an answer; a later one with the same number replaces it."""
        if number > _LOWER_HALF:
            return
        if number >= len(self._offsets):
            # An eighth more than is needed, so that a long file isn't copied again and again.
            self._offsets.frombytes(bytes(8 * (number + 1 - len(self._offsets) + (len(self._offsets) >> 3))))
        self.num_answers += not self._offsets[number]
        self._offsets[number] = offset + 1
        self._keys.extend(key & ~_LOWER_HALF | number for key in keys)

    def sort(self) -> None:
        self._sorted = numpy.frombuffer(self._keys, numpy.uint64)
        self._sorted.sort()  # without a copy

    def offset(self, number: int) -> int | None:
        """Return where the answer with this number is; None if there is none."""
        return self._offsets[number] - 1 if number < len(self._offsets) and self._offsets[number] else None

    def offsets(self) -> Iterable[int]:
        """Return where the answers are, in the order of their numbers."""
        return (offset - 1 for offset in self._offsets if offset)

    def find(self, key: int, number: int | None = None) -> list[int]:
        """Return where the first answers with this key are. If the one with this number has the key, it comes first."""
        start = key & ~_LOWER_HALF
        first, end = self._at(start), self._at(start | _LOWER_HALF, is_after=True)
        # Of a prompt that was asked a million times, only the beginning is looked at.
        found = (self._sorted[first : min(end, first + _MOST_FOUND)] & numpy.uint64(_LOWER_HALF)).tolist()
        if number is not None and (same := self._at(start | number)) < end and self._sorted[same] == start | number:
            found.insert(0, number)
        offsets = (self.offset(each) for each in dict.fromkeys(found))
        return [offset for offset in offsets if offset is not None]

    def _at(self, value: int, *, is_after: bool = False) -> int:
        return int(numpy.searchsorted(self._sorted, numpy.uint64(value), "right" if is_after else "left"))
