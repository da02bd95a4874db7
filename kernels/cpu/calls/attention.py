"""The memory that the plan of a step's attention needs on the CPU, and that of its parts."""

from ctypes import addressof, sizeof

import numpy

from ....records import dataclass
from ...arrays import Array, address
from ..structs import AttentionPlan, Tile

# Room for so many (token, split of a context) pairs: rows that share a prefix or are alone need it. Without it they are
# computed in fewer, larger pieces, to the same bits. Memory that no step uses is never touched.
MAX_PARTS = 4096
_TILE_INTS = sizeof(Tile) // 4


@dataclass
class PlanMemory:
    """A plan's arguments and the memory behind them; one for each window that a model's layers have."""

    arguments: AttentionPlan
    memory: Array  # int32

    @classmethod
    def allocate(
        cls,
        step: int,
        max_tokens: int,
        max_rows: int,
        block_size: int,
        num_heads: int,
        num_query_heads: int,
        window: int | None = None,
        max_parts: int = MAX_PARTS,
    ) -> "PlanMemory":
        """Allocate for steps of up to so many tokens and rows; `step` is the address of the `Step`."""
        most = max_tokens + max_parts
        sizes = (2, most * _TILE_INTS, most, max_tokens, max_tokens, 2 * max_rows)
        memory = numpy.zeros(sum(sizes), numpy.int32)
        addresses = map(address, numpy.split(memory, numpy.cumsum(sizes[:-1])))
        sharing = num_query_heads // num_heads
        return cls(AttentionPlan(step, window or 0, block_size, num_heads, sharing, max_parts, *addresses), memory)

    @property
    def address(self) -> int:
        return addressof(self.arguments)


def num_part_floats(num_query_heads: int, value_dim: int, max_parts: int = MAX_PARTS) -> int:
    """How many floats the parts of one layer take; layers run one after another and use the same ones."""
    return max_parts * num_query_heads * (value_dim + 2)
