"""The layers' views of a GGUF file's tensors: some rows, reordered columns, or values computed from several tensors.

Rows are outputs, and whole rows of blocks are returned unchanged. A cut through blocks converts them to floats.
"""

import math
from collections.abc import Callable
from dataclasses import field
from functools import cache
from typing import Protocol

import numpy

from ....kernels.arrays import FLOAT32, Array
from ....kernels.elementary import logarithm
from ....kernels.stored.ggml import GgmlPart
from ....records import dataclass
from ..piece import Part
from .tensors import StoredTensor

FindTensor = Callable[[str], StoredTensor]
ALL = slice(None)


class View(Protocol):
    """A tensor in the form that layers ask for."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of its source tensors in the file."""

    def floats(self, find: FindTensor) -> Array:
        """The whole tensor as floats, outputs first."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of one tensor, consecutive or in any order."""

    tensor: str
    chosen: slice | Array = field(default_factory=lambda: ALL)

    @property
    def tensors(self) -> tuple[str, ...]:
        return (self.tensor,)

    def floats(self, find: FindTensor) -> Array:
        found = find(self.tensor).floats()
        if isinstance(self.chosen, slice) and self.chosen == ALL:
            return found
        return found.reshape(-1, *found.shape[1:][-1:])[self.chosen]

    def shape(self, find: FindTensor) -> tuple[int, int]:
        """[outputs, inputs]; all dimensions but the last count as outputs."""
        stored = find(self.tensor)
        total, chosen = len(stored.octets), self.chosen
        count = len(range(*chosen.indices(total))) if isinstance(chosen, slice) else len(chosen)
        return count, stored.shape[-1] if stored.shape else 1

    def matrix(self, find: FindTensor, part: Part | None) -> Array | GgmlPart:
        """[outputs, inputs] or a part of them, in blocks if they are stored so."""
        stored = find(self.tensor)
        if part is None:
            return stored.rows(self.chosen)
        dim, first, last = part
        if dim == 1:
            return _columns(stored.rows(self.chosen), first, last)
        if isinstance(self.chosen, slice):
            begin = self.chosen.start or 0
            return stored.rows(slice(begin + first, begin + last))
        return stored.rows(self.chosen[first:last])


@dataclass(frozen=True, eq=False)
class Columns:
    """A matrix whose stored inputs have a different order from the layers'."""

    tensor: str
    order: Array  # the stored column of each of the layers' inputs

    @property
    def tensors(self) -> tuple[str, ...]:
        return (self.tensor,)

    def floats(self, find: FindTensor) -> Array:
        return find(self.tensor).floats()[:, self.order]


@dataclass(frozen=True, eq=False)
class Made:
    """Values that a function computes from one or more tensors."""

    tensors: tuple[str, ...]
    make: Callable[..., Array]

    def floats(self, find: FindTensor) -> Array:
        return self.make(*(find(name).floats() for name in self.tensors))


def _columns(rows: Array | GgmlPart, first: int, last: int) -> Array | GgmlPart:
    if isinstance(rows, numpy.ndarray):
        return rows[:, first:last]
    size = rows.block.block
    if first % size == 0 and last % size == 0:
        return rows.columns(first, last)
    begin = first // size * size
    return rows.columns(begin, -(-last // size) * size).dequantized()[:, first - begin : last - begin]


# --- orders of rows ---------------------------------------------------------------------------------------------------


@cache
def halves_of_pairs(num_heads: int, head_dim: int) -> Array:
    """The rows of queries or keys in files that rotate neighbouring elements: a head's first half is in the even rows,
    its second half in the odd ones."""
    return numpy.arange(num_heads * head_dim).reshape(num_heads, head_dim // 2, 2).swapaxes(1, 2).reshape(-1)


@cache
def grouped_heads(num_groups: int, in_group: int, head_dim: int) -> Array:
    """The file's order of heads that are grouped here: the file has the first head of each group, then the second head
    of each, and so on."""
    rows = numpy.arange(num_groups * in_group * head_dim).reshape(in_group, num_groups, head_dim)
    return rows.swapaxes(0, 1).reshape(-1)


def behind(count: int, order: Array) -> Array:
    """So many rows unchanged, then these."""
    return numpy.concatenate((numpy.arange(count), order + count))


@cache
def in_turns(num_groups: int, in_group: int, second: bool) -> Array:
    """The rows of the first or second of two things that alternate in blocks of so many rows."""
    rows = numpy.arange(2 * num_groups * in_group).reshape(num_groups, 2, in_group)
    return rows[:, int(second)].reshape(-1)


# --- numbers ----------------------------------------------------------------------------------------------------------


def less_one(weight: Array) -> Array:
    """Subtract 1 from a norm's stored weight; layers add it again."""
    return weight.astype(FLOAT32) - 1.0


def log_of_negated(numbers: Array) -> Array:
    """log(-x)."""
    return numpy.array([logarithm(-each) for each in numbers.ravel().tolist()], FLOAT32).reshape(numbers.shape)


def alternating(first: Array, second: Array) -> Array:
    """[…, 2 × n]: interleave both."""
    return numpy.stack((first, second), -1).reshape(*first.shape[:-1], -1)


def row(number: int) -> Callable[[Array], Array]:
    return lambda stored: stored[number]


def fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether the shapes agree except for dimensions of 1, which ggml drops."""
    return math.prod(found) == math.prod(wanted) and [n for n in found if n > 1] == [n for n in wanted if n > 1]
