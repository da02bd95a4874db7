"""Positions in time, height and width for each token of a prompt, for models that rotate by three.

Text counts on in all three alike. A run of rows keeps the position where it begins and adds each row's own place in
its grid; what follows it counts on from there by the longer side of the grid, as transformers does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from ...protocol.errors import LimitError
from .families.family import Grid

# From a video's first frame to its last: hours of it. Rotary tables grow to the largest position that comes.
_MOST_STEPS = 1 << 15


class Run(NamedTuple):
    """Rows of a medium that stand together in the prompt."""

    start: int
    length: int
    grid: Grid


def positions_of(num_tokens: int, runs: Sequence[Run]) -> numpy.ndarray:
    """int32 [3, tokens]; runs in the order of the prompt."""
    positions = numpy.empty((3, num_tokens), numpy.int32)
    token = position = 0
    for run in runs:
        position = _count(positions, token, run.start, position)
        token = run.start + run.length
        positions[:, run.start : token] = position + _places(run.grid)
        position += max(run.grid.height, run.grid.width)
    _count(positions, token, num_tokens, position)
    return positions


def _count(positions: numpy.ndarray, start: int, end: int, position: int) -> int:
    """Number the tokens of a text; returns the position after it."""
    positions[:, start:end] = numpy.arange(position, position + end - start, dtype=numpy.int32)
    return position + end - start


def _places(grid: Grid) -> numpy.ndarray:
    """Each row's steps from where its run begins."""
    if grid.times[-1] > _MOST_STEPS:
        raise LimitError(
            f"A video may last {_MOST_STEPS:,} steps of the model's time, and one of the prompt lasts "
            f"{grid.times[-1]:,}. Send a part of it, or say how many frames a second there are (sample_fps)."
        )
    times = numpy.array(grid.times, numpy.int32)
    return numpy.stack(
        [each.ravel() for each in numpy.meshgrid(times, range(grid.height), range(grid.width), indexing="ij")]
    ).astype(numpy.int32)
