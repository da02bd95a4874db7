"""Low-rank adapters as operations see them: how large they may be, and which tokens of a step have one.

An adapter adds up × (down × x) to a product, `down` being [rank, in] and `up` [out, rank], both small. Several adapters
are in memory at once, each known by a number, and every row of a step may have its own or none.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy

from ..records import dataclass
from .arrays import Array, DeviceArray, DType

BLOCK_TOKENS = 32  # few enough that their inputs stay in the second cache along with an adapter's weights


@dataclass(frozen=True)
class LoraConfig:
    """How many adapters there may be, of which rank, and the number format of their weights."""

    dtype: DType
    max_adapters: int
    max_rank: int


class LoraWeights(Protocol):
    """The weights of all adapters for one product, whose outputs may be several parts side by side."""

    @property
    def nbytes(self) -> int:
        """What is planned for all adapters, whether loaded or not."""

    @property
    def untouched(self) -> tuple[Array, ...]:
        """The host's memory that was taken and not touched yet."""

    def put(self, adapter: int, part: int, down: Array, up: Array) -> None:
        """Take over `down` [rank, in] and `up` [out, rank] of a part; no step may use the adapter meanwhile."""

    def remove(self, adapter: int) -> None:
        """From now on this adapter adds nothing."""


@dataclass(frozen=True, eq=False)
class LoraMapping:
    """The tokens of a step that have an adapter, those of one adapter side by side."""

    tokens: DeviceArray  # int32 [N], where the products are computed
    blocks: Array  # int32 [B, 3]: an adapter, the first index of its tokens in that list, how many

    @classmethod
    def of(
        cls, adapters: Array, num_tokens: Array, put: Callable[[Array], DeviceArray] = lambda tokens: tokens
    ) -> "LoraMapping | None":
        """From each row's adapter, below 0 for none, and its number of tokens; None if no row has an adapter.

        `put` has the tokens where the products are computed.
        """
        chosen = numpy.flatnonzero(adapters >= 0)
        if not len(chosen):
            return None
        rows = chosen[numpy.argsort(adapters[chosen], kind="stable")]
        counts = num_tokens[rows]
        total, starts = int(counts.sum()), (numpy.cumsum(num_tokens) - num_tokens)[rows]
        tokens = numpy.arange(total) + numpy.repeat(starts - (numpy.cumsum(counts) - counts), counts)
        adapter = numpy.repeat(adapters[rows], counts)
        # A block ends where the adapter changes, and after so many tokens of one.
        is_first = numpy.append(True, adapter[1:] != adapter[:-1])
        index = numpy.arange(total) - numpy.flatnonzero(is_first)[numpy.cumsum(is_first) - 1]
        firsts = numpy.flatnonzero(index % BLOCK_TOKENS == 0)
        blocks = numpy.stack((adapter[firsts], firsts, numpy.diff(firsts, append=total)), 1)
        return cls(put(tokens.astype(numpy.int32)), blocks.astype(numpy.int32))

    @cached_property
    def groups(self) -> list[tuple[int, DeviceArray]]:
        """Each adapter, and all its tokens."""
        ends: dict[int, list[int]] = {}
        for adapter, first, count in self.blocks.tolist():
            ends.setdefault(adapter, [first, first])[1] = first + count
        return [(adapter, self.tokens[first:end]) for adapter, (first, end) in ends.items()]
