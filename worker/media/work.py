"""The work of encoding a medium, stage by stage, and how to divide it. Imports no torch.

A layer is two stages: `project` makes the patches' queries, keys and values, which must be complete before `attend`
does the rest. These, `embed` before the layers and `merge`, which makes rows, can be computed for any number of patches
at a time without changing results. Patches are counted in groups, each of which becomes a row.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from ..description.products import KEY_COST
from ..description.vision_config import VisionConfig

MOST_PATCHES = 1024  # computed together
_FEWEST = 64  # computed together, except at the end of a stage: fewer take nearly as long

StageKind = Literal["embed", "project", "attend", "merge"]


class Stage(NamedTuple):
    kind: StageKind
    number: int  # of the layer, or of the part of the rows
    length: int  # in groups of patches, or rows
    cost: int  # per group or row, in integer multiplications


def projection_products(config: VisionConfig) -> int:
    """Multiplications per patch in one layer's projections."""
    return 3 * config.hidden_size**2


def layer_products(config: VisionConfig) -> int:
    """Multiplications per patch in one layer, without attention."""
    mlp = len(config.family.mlp) * config.intermediate_size * config.hidden_size
    return projection_products(config) + config.hidden_size**2 + mlp


def key_cost(config: VisionConfig) -> int:
    """Multiplications per patch and key."""
    return int(KEY_COST * 2 * config.hidden_size)


class Work:
    """All stages of one medium as a line that can be cut anywhere."""

    def __init__(self, stages: Sequence[Stage], total: int, patches_of_row: int) -> None:
        """The line has the length `total`."""
        self.total = total
        self._stages = stages
        self._ends = list(accumulate(stage.length * stage.cost for stage in stages))
        self._fewest = -(-_FEWEST // patches_of_row)
        self._most = MOST_PATCHES // patches_of_row

    def between(self, first: int, end: int) -> Iterator[tuple[Stage, int, int]]:
        """The stages between two points of the line, with ranges of their groups or rows."""
        (begin, done), (last, until) = self._locate(first), self._locate(end)
        for number in range(begin, min(last + 1, len(self._stages))):
            stage = self._stages[number]
            start, stop = done if number == begin else 0, until if number == last else stage.length
            for at in range(start, stop, self._most):
                yield stage, at, min(stop, at + self._most)

    def _locate(self, part: int) -> tuple[int, int]:
        """The stage at this point of the line, and how much of it comes before."""
        cost = self._ends[-1] * part // self.total
        number = bisect_right(self._ends, cost)
        if number == len(self._stages):
            return number, 0
        stage = self._stages[number]
        done = (cost - (self._ends[number] - stage.length * stage.cost)) // stage.cost
        return number, done // self._fewest * self._fewest
