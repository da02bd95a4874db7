"""Pairs of token and rank sorted by expert, in blocks of one expert each, without asking the host: a program an expert.

Each counts the pairs of all experts, so that it knows where its own blocks begin, and then writes its pairs down in
ascending order. One more program says of the blocks that are left over that they are empty.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...experts import ExpertBlocks
from ...reference import gpu_experts as reference
from ..rows import block_of

_CHUNK = 1024  # pairs that are looked at at once


@triton.jit(do_not_specialize=["num_pairs", "num_blocks"])
def _sort(
    chosen, experts, pairs, num_pairs, num_blocks, first, num_experts, SIZE: tl.constexpr, EXPERTS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    expert, numbers = tl.program_id(0), tl.arange(0, EXPERTS)
    counts = tl.zeros([EXPERTS], tl.int32)
    for start in range(0, num_pairs, CHUNK):
        local = _experts_of(chosen, start, num_pairs, first, num_experts, CHUNK)
        counts += tl.histogram(tl.maximum(local, 0), EXPERTS, mask=local >= 0)
    blocks = (counts + SIZE - 1) // SIZE
    block = tl.sum(tl.where(numbers < expert, blocks, 0), 0)
    if expert < num_experts:
        own_blocks = tl.sum(tl.where(numbers == expert, blocks, 0), 0)
        _write_pairs(
            chosen, pairs + block.to(tl.int64) * SIZE, expert, own_blocks * SIZE, num_pairs, first, num_experts, CHUNK
        )
        _fill(experts + block, own_blocks, expert, CHUNK)
    else:
        left = num_blocks - block
        _fill(pairs + block.to(tl.int64) * SIZE, left * SIZE, -1, CHUNK)
        _fill(experts + block, left, -1, CHUNK)


@triton.jit
def _experts_of(chosen, start, num_pairs, first, num_experts, CHUNK: tl.constexpr):
    """The experts of a chunk of pairs, counted from the first one here; -1 for those that are elsewhere."""
    indices = start + tl.arange(0, CHUNK)
    local = tl.load(chosen + indices, mask=indices < num_pairs, other=-1) - first
    is_here = (indices < num_pairs) & (local >= 0) & (local < num_experts)
    return tl.where(is_here, local, -1)


@triton.jit
def _write_pairs(chosen, own_pairs, expert, room, num_pairs, first, num_experts, CHUNK: tl.constexpr):
    """An expert's pairs, and -1 where its last block is not full."""
    count = 0
    for start in range(0, num_pairs, CHUNK):
        is_own = (_experts_of(chosen, start, num_pairs, first, num_experts, CHUNK) == expert).to(tl.int32)
        indices = count + tl.cumsum(is_own, 0) - 1
        tl.store(own_pairs + indices, start + tl.arange(0, CHUNK), mask=is_own > 0)
        count += tl.sum(is_own, 0)
    _fill(own_pairs + count, room - count, -1, CHUNK)


@triton.jit
def _fill(base, count, value, CHUNK: tl.constexpr):
    for start in range(0, count, CHUNK):
        indices = start + tl.arange(0, CHUNK)
        tl.store(base + indices, tl.full([CHUNK], 0, tl.int32) + value, mask=indices < count)


@reference.blocks_by_expert.implement("triton")
def blocks_by_expert(chosen: Tensor, first: int, num_experts: int, size: int) -> ExpertBlocks:
    num_pairs, device = chosen.numel(), chosen.device
    num_blocks = ExpertBlocks.num_blocks(num_pairs, num_experts, size)
    blocks = ExpertBlocks(
        torch.empty(num_blocks, dtype=torch.int32, device=device),
        torch.empty(num_blocks, size, dtype=torch.int32, device=device),
    )
    if num_blocks:
        sizes = (num_pairs, num_blocks, first, num_experts)
        constants = {"SIZE": size, "EXPERTS": block_of(num_experts), "CHUNK": _CHUNK}
        _sort[num_experts + 1,](chosen.contiguous(), *blocks, *sizes, **constants)
    return blocks
