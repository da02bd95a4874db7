"""Low-rank adapters as operations see them: how large they may be, and which tokens of a step have one.

An adapter adds up × (down × x) to a product, `down` being [rank, in] and `up` [out, rank], both small. Several adapters
are in memory at once, each known by a number, and every row of a step may have its own or none.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy
import torch
from torch import Tensor

from .arrays import DType

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
    def tensors(self) -> tuple[Tensor, ...]:
        """Memory that was taken and not touched yet."""

    def put(self, adapter: int, part: int, down: Tensor, up: Tensor) -> None: ...

    def remove(self, adapter: int) -> None:
        """From now on this adapter adds nothing."""


@dataclass(frozen=True, eq=False)
class LoraMapping:
    """The tokens of a step that have an adapter, those of one adapter side by side."""

    tokens: Tensor  # int32 [N], where the products are computed
    blocks: Tensor  # int32 [B, 3]: an adapter, the first index of its tokens in that list, how many; on the host

    @classmethod
    def of(
        cls, adapters: numpy.ndarray, num_tokens: numpy.ndarray, device: torch.device | str = "cpu"
    ) -> "LoraMapping | None":
        """From each row's adapter, below 0 for none, and its number of tokens; None if no row has an adapter."""
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
        columns = (numpy.ascontiguousarray(numbers, numpy.int32) for numbers in (tokens, blocks))
        on_host, stretches = map(torch.from_numpy, columns)
        return cls(on_host.to(device), stretches)

    @cached_property
    def groups(self) -> list[tuple[int, Tensor]]:
        """Each adapter, and all its tokens."""
        ends: dict[int, list[int]] = {}
        for adapter, first, count in self.blocks.tolist():
            ends.setdefault(adapter, [first, first])[1] = first + count
        return [(adapter, self.tokens[first:end].long()) for adapter, (first, end) in ends.items()]


@dataclass(frozen=True, eq=False)
class DeviceLoraMapping:
    """`LoraMapping` in a device's tensors, whose sizes stay: a captured step is replayed with other numbers in them."""

    tokens: Tensor  # int32 [N]
    blocks: Tensor  # int32 [B, 3]; one of no tokens is not there

    @classmethod
    def room(cls, num_tokens: int, max_adapters: int, device: torch.device | str) -> "DeviceLoraMapping":
        """Room for any step of so many tokens; at first none of them has an adapter."""
        # Those that are full, and one for each adapter that is not.
        most_blocks = num_tokens // BLOCK_TOKENS + min(max_adapters, num_tokens)
        sizes = ((num_tokens,), (most_blocks, 3))
        return cls(*(torch.zeros(size, dtype=torch.int32, device=device) for size in sizes))

    def take(self, adapted: LoraMapping | None) -> None:
        """Copy a step's mapping into it, without waiting for a launch."""
        self.blocks.zero_()
        if adapted is not None:
            for room, taken in ((self.tokens, adapted.tokens), (self.blocks, adapted.blocks)):
                room[: len(taken)].copy_(taken, non_blocking=True)
