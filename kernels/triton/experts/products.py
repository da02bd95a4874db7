"""Grouped products: a block of pairs meets the weight of the expert that they share, a tile of its outputs a program.

  gate and up   x's rows, one for the top_k pairs of a token; the activation of both sums is stored for each pair
  down          the rows that this left, one for each pair

Programs of blocks that are empty end at once. Lines of a tile, its gating and its sums are those of few_rows.py; inputs
are not cut into parts, since there are as many tiles as experts make them.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ...experts import ExpertBlocks, GatedActivation
from ...torch.packed.gpu_experts import GpuExperts
from ..launch.tuning import LaunchConfig
from ..products.few_rows.ending import lines_of_tile
from ..products.tiles.part_sums import as_kernels_take_it, is_even, sum_of_part
from ..products.tiles.tiles import finished


class Activation(NamedTuple):
    """The numbers of `GatedActivation`, as a kernel takes them."""

    slope: tl.tensor
    shift: tl.tensor
    limit: tl.tensor
    cubic: tl.tensor


@triton.jit
def pairs_and_rows(pairs, SHARE: tl.constexpr, SIZE: tl.constexpr):
    """This block's pairs, and the rows that they read; those that are none read the first one."""
    own = tl.load(pairs + tl.program_id(0) * SIZE + tl.arange(0, SIZE))
    return own, (tl.maximum(own, 0) // SHARE).to(tl.int64)


@triton.jit
def outputs_and_lines(expert, num_outputs, BLOCK_N: tl.constexpr, IS_GATED: tl.constexpr):
    """This tile's first output, and its lines in the weight of all experts."""
    first_output = tl.program_id(1) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED)
    return first_output, lines + expert.to(tl.int64) * num_outputs * (2 if IS_GATED else 1)


@triton.jit
def store_results(results, output, own, first_output, num_outputs, activation, IS_GATED: tl.constexpr):
    """Results [lines, pairs]."""
    BLOCK: tl.constexpr = results.shape[0] // 2 if IS_GATED else results.shape[0]
    if IS_GATED:
        gate, up = tl.split(tl.permute(tl.reshape(results, [BLOCK, 2, results.shape[1]]), [0, 2, 1]))
        gate = tl.minimum(gate, activation.limit)
        up = tl.minimum(tl.maximum(up, -activation.limit), activation.limit)
        inner = tl.where(activation.cubic != 0, gate + activation.cubic * gate * gate * gate, gate)
        results = gate / (1 + tl.exp(-activation.slope * inner)) * (up + activation.shift)
    outputs = first_output + tl.arange(0, BLOCK)
    is_there = (outputs < num_outputs)[:, None] & (own >= 0)[None, :]
    targets = output + own.to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    tl.store(targets, results.to(output.dtype.element_ty), mask=is_there)


@triton.jit
def multiply_experts(
    x, weight, row_scales, bias, output, experts, pairs, slope, shift, limit, cubic, num_outputs, num_inputs,
    FORM: tl.constexpr, SHARE: tl.constexpr, IS_GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
    IS_EVEN: tl.constexpr, BLOCK_K: tl.constexpr = 0,
):  # fmt: skip
    expert = tl.load(experts + tl.program_id(0))
    if expert >= 0:
        own, rows = pairs_and_rows(pairs, SHARE, SIZE)
        first_output, lines = outputs_and_lines(expert, num_outputs, BLOCK_N, IS_GATED)
        zeros = tl.zeros((BLOCK_N, SIZE), tl.int32 if x.dtype.element_ty == tl.int8 else tl.float32)
        sums, _ = sum_of_part(
            x + rows * num_inputs, weight, lines, None, 0, num_inputs, zeros, FORM, BLOCK_K, 1, IS_EVEN
        )
        scales_of_rows = None if row_scales is None else tl.load(row_scales + rows)
        results = finished(sums, weight.scales if FORM.kind == "int8" else None, scales_of_rows, bias, lines)
        store_results(results, output, own, first_output, num_outputs, Activation(slope, shift, limit, cubic), IS_GATED)


def multiply(
    x: Tensor,
    row_scales: Tensor | None,
    experts: GpuExperts,
    bias: Tensor | None,
    blocks: ExpertBlocks,
    output: Tensor,
    activation: GatedActivation | None,
    choice: LaunchConfig,
) -> Tensor:
    """Fills `output` [pairs, outputs], of pairs whose experts are here, from rows of x that as many pairs share; with
    an activation there are half as many outputs as lines."""
    weight, is_gated, (num_blocks, size) = experts.weight, activation is not None, blocks.pairs.shape
    tile = choice["BLOCK_N"] // (1 + is_gated)
    numbers = activation or GatedActivation()
    figures = (numbers.slope, numbers.shift, numbers.limit, numbers.cubic)
    common = (row_scales, bias, output, *blocks, *figures, output.shape[1], weight.in_features)
    options: dict[str, Any] = {"SHARE": len(output) // len(x), "IS_GATED": is_gated, "SIZE": size, **choice.options}
    tensors, form = as_kernels_take_it(weight)
    grid = (num_blocks, triton.cdiv(output.shape[1], tile))
    multiply_experts[grid](x, tensors, *common, FORM=form, IS_EVEN=is_even(weight, choice), **options)
    return output
