"""The weighted sum of what a token's experts make of it: blocks by expert, two grouped products, and the sum by rank.

Four launches, six where rows are quantized. A pair's outputs are stored, and a token's are added up in the order of its
experts, so its bits don't depend on which pairs share its block; in the invariant form tiles don't either.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...experts import ExpertBlocks, ExpertWeights, GatedActivation, Routes
from ...operands import DTYPES
from ...reference import gpu_experts as reference
from ...torch.packed.gpu_experts import GpuExperts
from ..launch.tuning import LaunchConfig, architecture
from ..products.linear import quantize_rows
from ..rows import block_of
from .blocks import blocks_by_expert
from .choice import MANY_PAIRS, TUNINGS, block_size
from .grouped import grouped_experts, serves
from .products import multiply

_LARGEST_BLOCK = 1024


@triton.jit
def _sum(outputs, experts, weights, total, first, num_experts, width, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    token, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for rank in range(TOP_K):
        pair = token * TOP_K + rank
        local = tl.load(experts + pair) - first
        is_here = (local >= 0) & (local < num_experts)
        output = tl.load(outputs + pair * width + columns, mask=(columns < width) & is_here, other=0).to(tl.float32)
        sums += tl.where(is_here, tl.load(weights + pair) * output, 0.0)
    tl.store(total + token * width + columns, sums.to(total.dtype.element_ty), mask=columns < width)


@reference.experts_gpu.implement("triton")
def experts(x: Tensor, routes: Routes, weights: ExpertWeights) -> Tensor:
    if serves(x, routes, weights):
        return grouped_experts(x.contiguous(), routes, weights, partial(_added_up, x, routes, weights))
    return _computed(x, routes, weights, block_size(routes.experts.numel(), weights.num_experts), is_tuned=True)


@reference.experts_gpu_invariant.implement("triton")
def experts_invariant(x: Tensor, routes: Routes, weights: ExpertWeights) -> Tensor:
    """One tile and one order of the inputs for any number of rows."""
    return _computed(x, routes, weights, MANY_PAIRS, is_tuned=False)


def _computed(x: Tensor, routes: Routes, weights: ExpertWeights, size: int, is_tuned: bool) -> Tensor:
    x, (tokens, top_k), (first, here) = x.contiguous(), routes.experts.shape, (weights.first, weights.num_experts)
    if not tokens:
        return torch.empty_like(x)
    blocks = blocks_by_expert(routes.experts, first, here, size)
    inner = x.new_empty(tokens * top_k, weights.width)
    inner = _product(x, weights.gate_up, weights.gate_up_bias, blocks, inner, weights.activation, is_tuned)
    outputs = x.new_empty(tokens * top_k, x.shape[1])
    outputs = _product(inner, weights.down, weights.down_bias, blocks, outputs, None, is_tuned)
    return _added_up(x, routes, weights, outputs)


def _added_up(x: Tensor, routes: Routes, weights: ExpertWeights, outputs: Tensor) -> Tensor:
    """Of each token, from its pairs' outputs."""
    total, (tokens, top_k) = torch.empty_like(x), routes.experts.shape
    block = min(block_of(x.shape[1]), _LARGEST_BLOCK)
    grid, sizes = (tokens, triton.cdiv(x.shape[1], block)), (weights.first, weights.num_experts, x.shape[1])
    _sum[grid](outputs, *routes, total, *sizes, TOP_K=top_k, BLOCK=block)
    return total


def _product(
    x: Tensor,
    experts: GpuExperts,
    bias: Tensor | None,
    blocks: ExpertBlocks,
    output: Tensor,
    activation: GatedActivation | None,
    is_tuned: bool,
) -> Tensor:
    met, scales = quantize_rows(x) if experts.quantizes_rows else (x, None)
    launch = partial(multiply, met, scales, experts, bias)
    weight = experts.weight
    width = (weight.values if weight.kind in DTYPES else met).element_size()
    key = (
        width,
        blocks.pairs.shape[1],
        experts.out_features,
        weight.in_features,
        weight.group_size,
        int(not activation),
    )
    tuning = TUNINGS[weight.kind]
    if not is_tuned:
        return launch(blocks, output, activation, tuning.default(architecture(), key))

    def tried(choice: LaunchConfig) -> None:
        launch(_evenly(blocks, len(output), experts.num_experts), torch.empty_like(output), activation, choice)

    return launch(blocks, output, activation, tuning.choice(key, tried))


def _evenly(blocks: ExpertBlocks, num_pairs: int, num_experts: int) -> ExpertBlocks:
    """Blocks as of pairs that are spread evenly: a warm-up's tokens are all alike, and read few experts' weights."""
    chosen = torch.arange(num_pairs, dtype=torch.int32, device=blocks.pairs.device) % num_experts
    return blocks_by_expert(chosen, 0, num_experts, blocks.pairs.shape[1])
