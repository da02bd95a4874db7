"""What encoding a medium consists of, stage by stage, and how far a share of the whole leads. Imports no torch.

A layer is two stages. `project` makes queries of patches, and keys and values, which all must be there before `attend`
does the rest. Either is computed for as many patches at a time as one likes, which changes no number: so is `embed`,
which comes before the layers, and `merge`, which makes rows. Patches are counted in groups, of those that become a row.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from ..description.vision_config import VisionConfig

MOST_PATCHES = 1024  # that are computed together
_FEWEST = 64  # likewise, unless a stage ends: fewer take nearly as long
# Attention multiplies numbers that are floats, and a layer's products are mostly integers: measured 2.9 on a Zen 5.
_KEY_COST = 2.5

StageKind = Literal["embed", "project", "attend", "merge"]


class Stage(NamedTuple):
    kind: StageKind
    number: int  # of the layer, or of the part of the rows
    length: int  # in groups of patches, or rows
    cost: int  # of one, in multiplications of integers


def projection_products(config: VisionConfig) -> int:
    """Of a patch in one layer."""
    return 3 * config.hidden_size**2


def layer_products(config: VisionConfig) -> int:
    """Of a patch in one layer, whatever it attends to."""
    mlp = len(config.family.mlp) * config.intermediate_size * config.hidden_size
    return projection_products(config) + config.hidden_size**2 + mlp


def key_cost(config: VisionConfig) -> int:
    """Of a patch that attends to a key."""
    return int(_KEY_COST * 2 * config.hidden_size)


class Work:
    """All stages of one medium, as a line that is cut where one likes."""

    def __init__(self, stages: Sequence[Stage], total: int, patches_of_row: int) -> None:
        """The line has the length `total`."""
        self.total = total
        self._stages = stages
        self._ends = list(accumulate(stage.length * stage.cost for stage in stages))
        self._fewest = -(-_FEWEST // patches_of_row)
        self._most = MOST_PATCHES // patches_of_row

    def between(self, first: int, end: int) -> Iterator[tuple[Stage, int, int]]:
        """What is computed from one place of the line to another: stages, and which of their groups or rows."""
        (begin, done), (last, until) = self._place(first), self._place(end)
        for number in range(begin, min(last + 1, len(self._stages))):
            stage = self._stages[number]
            start, stop = done if number == begin else 0, until if number == last else stage.length
            for at in range(start, stop, self._most):
                yield stage, at, min(stop, at + self._most)

    def _place(self, part: int) -> tuple[int, int]:
        """A stage, and how much of it lies before this place."""
        cost = self._ends[-1] * part // self.total
        number = bisect_right(self._ends, cost)
        if number == len(self._stages):
            return number, 0
        stage = self._stages[number]
        done = (cost - (self._ends[number] - stage.length * stage.cost)) // stage.cost
        return number, done // self._fewest * self._fewest
