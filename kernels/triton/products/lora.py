"""What low-rank adapters add to a product, for any mixture of adapters, in two launches.

`_shrink` multiplies a block of one adapter's tokens by `down`, each program a stretch of the inputs, so that a few
tokens of one adapter keep many multiprocessors busy; `_expand` sums the stretches in their order, multiplies by `up`
and adds. Sizes of blocks depend on the product alone, so a token's bits don't depend on its company.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...arrays import Array
from ...lora import BLOCK_TOKENS, LoraConfig
from ...torch.arrays import tensor_of, torch_dtype
from ..launch.tuning import LaunchConfig, Tuning

# One choice: where the inputs are cut decides how sums are rounded.
_ON_GPU = LaunchConfig.of(num_warps=4, num_stages=3, SPLIT=2048)
_INTERPRETED = LaunchConfig.of(SPLIT=128)
_TUNING = Tuning("add_lora", lambda architecture, key: _ON_GPU if architecture else _INTERPRETED, [_ON_GPU])
_BYTES_AT_ONCE = 16 << 10  # of `down`, in shared memory
_COLUMNS, _NUMBERS = 64, 32  # of `up`, in registers


@triton.jit(do_not_specialize=["num_tokens"])
def _shrink(
    x, x_stride, tokens, blocks, down, ranks, shrunk, in_features, parts, max_rank, num_tokens, PRECISION: tl.constexpr,
    TOKENS: tl.constexpr, RANK: tl.constexpr, INNER: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    part, split = tl.program_id(1), tl.program_id(2)
    adapter, first, count = _three(blocks, tl.program_id(0))
    rank = tl.load(ranks + adapter * parts + part)
    if (count > 0) & (rank > 0):
        own, numbers, inner = tl.arange(0, TOKENS), tl.arange(0, RANK), tl.arange(0, INNER)
        token = tl.load(tokens + first + own, mask=own < count, other=0).to(tl.int64)
        line = (adapter * parts + part).to(tl.int64) * max_rank + numbers
        total = tl.zeros([TOKENS, RANK], tl.float32)
        for start in range(0, SPLIT, INNER):
            column = split * SPLIT + start + inner
            is_input = column < in_features
            is_there = (own < count)[:, None] & is_input[None, :]
            inputs = tl.load(x + token[:, None] * x_stride + column[None, :], mask=is_there, other=0.0)
            is_weight = (numbers < rank)[None, :] & is_input[:, None]
            weights = tl.load(down + line[None, :] * in_features + column[:, None], mask=is_weight, other=0.0)
            total = tl.dot(inputs.to(tl.float32), weights.to(tl.float32), total, input_precision=PRECISION)
        index = (split * num_tokens + first + own).to(tl.int64) * parts + part
        is_there = (own < count)[:, None] & (numbers < rank)[None, :]
        tl.store(shrunk + index[:, None] * RANK + numbers[None, :], total, mask=is_there)


@triton.jit(do_not_specialize=["num_tokens"])
def _expand(
    product, product_stride, tokens, blocks, up, ranks, shrunk, tiles, out_features, parts, max_rank, num_tokens,
    PRECISION: tl.constexpr, TOKENS: tl.constexpr, RANK: tl.constexpr, COLUMNS: tl.constexpr, NUMBERS: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    adapter, first, count = _three(blocks, tl.program_id(0))
    part, begin, end = _three(tiles, tl.program_id(1))
    rank = tl.load(ranks + adapter * parts + part)
    if (count > 0) & (rank > 0):
        own, column = tl.arange(0, TOKENS), begin + tl.arange(0, COLUMNS)
        line = up + (adapter.to(tl.int64) * out_features + column) * max_rank
        added = tl.zeros([TOKENS, COLUMNS], tl.float32)
        start = 0
        while start < rank:
            number = start + tl.arange(0, NUMBERS)
            is_there = (own < count)[:, None] & (number < rank)[None, :]
            inner = tl.zeros([TOKENS, NUMBERS], tl.float32)
            for split in range(SPLITS):
                index = (split * num_tokens + first + own).to(tl.int64) * parts + part
                inner += tl.load(shrunk + index[:, None] * RANK + number[None, :], mask=is_there, other=0.0)
            is_weight = (column < end)[None, :] & (number < rank)[:, None]
            weights = tl.load(line[None, :] + number[:, None], mask=is_weight, other=0.0)
            added = tl.dot(inner, weights.to(tl.float32), added, input_precision=PRECISION)
            start += NUMBERS
        token = tl.load(tokens + first + own, mask=own < count, other=0).to(tl.int64)
        target = product + token[:, None] * product_stride + column[None, :]
        is_output = (own < count)[:, None] & (column < end)[None, :]
        before = tl.load(target, mask=is_output, other=0.0)
        tl.store(target, (before.to(tl.float32) + added).to(before.dtype), mask=is_output)


@triton.jit
def _three(table, line):
    return tl.load(table + 3 * line), tl.load(table + 3 * line + 1), tl.load(table + 3 * line + 2)


class TritonLora:
    """The weights of all adapters for one product; memory is taken once, for the most adapters of the largest rank."""

    def __init__(self, in_features: int, outputs: Sequence[int], config: LoraConfig, device: torch.device) -> None:
        """`outputs` are the numbers of outputs of the product's parts."""
        self.in_features = in_features
        self.config, self.dtype = config, torch_dtype(config.dtype)
        ends = torch.tensor(outputs).cumsum(0).tolist()
        self.spans = [(end - count, end) for end, count in zip(ends, outputs, strict=True)]
        # What lies beyond an adapter's rank is never read.
        self.down = torch.empty(
            config.max_adapters, len(outputs), config.max_rank, in_features, dtype=self.dtype, device=device
        )
        self.up = torch.empty(config.max_adapters, sum(outputs), config.max_rank, dtype=self.dtype, device=device)
        self.ranks = torch.zeros(config.max_adapters, len(outputs), dtype=torch.int32, device=device)
        self.rounded_rank = max(16, triton.next_power_of_2(config.max_rank))
        spans = enumerate(self.spans)
        tiles = [(part, begin, end) for part, (start, end) in spans for begin in range(start, end, _COLUMNS)]
        self.tiles = torch.tensor(tiles, dtype=torch.int32, device=device)

    @property
    def untouched(self) -> tuple[Array, ...]:
        return ()

    @property
    def nbytes(self) -> int:
        return self.down.nbytes + self.up.nbytes

    def put(self, adapter: int, part: int, down: Array, up: Array) -> None:
        rank = down.shape[0]
        self.down[adapter, part, :rank] = tensor_of(down)
        self.up[adapter, slice(*self.spans[part]), :rank] = tensor_of(up)
        self.ranks[adapter, part] = rank

    def remove(self, adapter: int) -> None:
        self.ranks[adapter] = 0


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

    def take(self, adapted: "DeviceLoraMapping | None") -> None:
        """Copy a step's mapping from pinned memory into it, without waiting for a launch."""
        self.blocks.zero_()
        if adapted is not None:
            for room, taken in ((self.tokens, adapted.tokens), (self.blocks, adapted.blocks)):
                room[: len(taken)].copy_(taken, non_blocking=True)


def add_lora(product: Tensor, x: Tensor, lora: TritonLora, adapted: DeviceLoraMapping) -> Tensor:
    """Add the tokens' adapters of `x` to `product` in place."""
    choice, config, num_tokens = _TUNING.choice((lora.in_features,)), lora.config, len(adapted.tokens)
    splits, parts = triton.cdiv(lora.in_features, choice["SPLIT"]), len(lora.spans)
    shrunk = torch.empty(splits, num_tokens, parts, lora.rounded_rank, dtype=torch.float32, device=x.device)
    constants = {
        "PRECISION": _precision(lora.dtype),
        "TOKENS": BLOCK_TOKENS,
        "RANK": lora.rounded_rank,
        "num_warps": choice.num_warps,
        "num_stages": choice.num_stages,
    }
    which, num_blocks = (adapted.tokens, adapted.blocks), len(adapted.blocks)
    _shrink[num_blocks, parts, splits](
        x, x.stride(0), *which, lora.down, lora.ranks, shrunk, lora.in_features, parts, config.max_rank, num_tokens,
        INNER=_inner(lora.rounded_rank, lora.dtype), SPLIT=choice["SPLIT"], **constants,
    )  # fmt: skip
    _expand[num_blocks, len(lora.tiles)](
        product, product.stride(0), *which, lora.up, lora.ranks, shrunk, lora.tiles, lora.up.shape[1], parts,
        config.max_rank, num_tokens, COLUMNS=_COLUMNS, NUMBERS=min(_NUMBERS, lora.rounded_rank), SPLITS=splits,
        **constants,
    )  # fmt: skip
    return product


def _precision(dtype: torch.dtype) -> str:
    """Tensor cores' own float32 holds 16-bit numbers exactly, and their sums in range; float32 is three of it."""
    return "tf32x3" if dtype == torch.float32 else "tf32"


def _inner(rounded_rank: int, dtype: torch.dtype) -> int:
    """How many inputs are multiplied at once."""
    return max(16, min(128, _BYTES_AT_ONCE // (rounded_rank * dtype.itemsize)))
