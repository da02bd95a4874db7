"""A matrix in a checkpoint, or the part of it that a rank holds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# A part of a tensor: the entries from first to last + 1 of dimension `dim`.
Part = tuple[int, int, int]  # dim, first, last + 1


class CheckpointPiece(NamedTuple):
    """[A part of] a matrix in the checkpoint."""

    name: str
    shape: tuple[int, ...]
    part: Part | None = None

    @property
    def part_shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        if self.part is None:
            return self.shape
        dim, first, last = self.part
        return (*self.shape[:dim], last - first, *self.shape[dim + 1 :])


def index_of(part: Part | None) -> tuple[slice, ...]:
    """The index of this part in the whole tensor."""
    if part is None:
        return (slice(None),)
    dim, first, last = part
    return (*[slice(None)] * dim, slice(first, last))


def slices_of(index: Any, shape: Sequence[int]) -> list[slice]:
    """The range of each dimension that `index` selects.

    It has a slice for each of the first dimensions, or is an ellipsis.
    """
    given = () if index is ... else index if isinstance(index, tuple) else (index,)
    wanted = (*given, *[slice(None)] * (len(shape) - len(given)))
    return [slice(*each.indices(size)[:2]) for each, size in zip(wanted, shape, strict=True)]
