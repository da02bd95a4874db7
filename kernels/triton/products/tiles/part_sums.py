"""Sums over a part of the inputs, of a weight in any form.

  floats
  int8     also on both sides; scales wait until the sums are complete
  int4     in groups (part_sums_int4.py)
  blocks   of ggml's types (part_sums_blocks.py)

Tiles of weights and rows meet in the weight's format if that is a float, else in that of the rows.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ....arrays import BFLOAT16
from ....torch.packed.gpu_blocks import LOOKED_UP_ZERO, SPAN, GpuBlocks, float_type
from ....torch.packed.gpu_weights import GpuWeight
from ...launch.tuning import LaunchConfig
from .part_sums_blocks import sum_of_blocks_part
from .part_sums_int4 import sum_of_int4_part
from .tiles import factors_of, met, weighed


class WeightTensors(NamedTuple):
    """A weight as kernels are given it; what its form doesn't have is None."""

    numbers: Tensor  # lines of them, or of octets
    scales: Tensor | None  # of lines, of groups, or of blocks' groups
    zeros: Tensor | None = None  # of int4's groups
    # Of blocks alone; the table of what is looked up is the same for all lines.
    plane: Tensor | None = None
    d: Tensor | None = None
    dmin: Tensor | None = None
    mins: Tensor | None = None
    table: Tensor | None = None


class Form(NamedTuple):
    """What kernels of a weight are compiled for."""

    kind: str
    group: int = 0
    half: int = 0  # of int4: neighbours in one half of their bytes
    # Of blocks: bits of a code, inputs of a block, and how a code becomes a number.
    bits: int = 0
    block: int = 0
    zero: int = 0
    unit: float = 1.0
    is_power: bool = False


def as_kernels_take_it(weight: GpuWeight) -> tuple[WeightTensors, Form]:
    if isinstance(weight, GpuBlocks):
        codes, planes = weight.codes, weight.planes
        tensors = WeightTensors(weight.values, planes.scales, None, planes.plane, planes.d, planes.dmin, planes.mins)
        zero = LOOKED_UP_ZERO if codes.values else codes.zero
        numbers = (codes.bits, codes.block, zero, codes.unit, float_type(codes) == BFLOAT16)
        return tensors._replace(table=weight.table), Form("blocks", codes.group, 0, *numbers)
    if weight.kind == "int4":
        return WeightTensors(weight.values, weight.scales, weight.zeros), Form("int4", weight.group_size, weight.half)
    return WeightTensors(weight.values, weight.scales), Form("int8" if weight.kind == "int8" else "floats")


def is_even(weight: GpuWeight, choice: LaunchConfig) -> bool:
    """Whether the inputs are a multiple of those that a tile has at once."""
    if isinstance(weight, GpuBlocks):
        return weight.in_features % SPAN == 0
    return weight.in_features % (2 * weight.half if weight.kind == "int4" else choice["BLOCK_K"]) == 0


@triton.jit
def sum_of_part(
    x_rows, weight, lines, norm_weight, part, num_inputs, sums, FORM: tl.constexpr, BLOCK_K: tl.constexpr,
    PARTS: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    """[lines, rows] over a part of the inputs, beginning with zeros as `sums`; of normed rows [1, rows] squares too.

    `lines` are int64, and `x_rows` point to the beginnings of rows.
    """
    met_type: tl.constexpr = (weight.numbers if FORM.kind == "floats" else x_rows).dtype.element_ty
    if FORM.kind == "blocks":
        sums, squares = sum_of_blocks_part(
            x_rows, weight, lines, norm_weight, part, num_inputs, sums, FORM, PARTS, IS_EVEN, met_type
        )
    elif FORM.kind == "int4":
        sums, squares = sum_of_int4_part(
            x_rows, weight, lines, norm_weight, part, num_inputs, sums, FORM, PARTS, IS_EVEN, met_type
        )
    else:
        weight_lines = weight.numbers + lines * num_inputs
        sums, squares = _sum_of_bytes_part(
            x_rows, weight_lines, norm_weight, part, num_inputs, sums, BLOCK_K, PARTS, IS_EVEN, met_type
        )
    return sums, squares


@triton.jit
def _sum_of_bytes_part(
    x_rows, weight_lines, norm_weight, part, num_inputs, sums, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
    IS_EVEN: tl.constexpr, met_type: tl.constexpr,
):  # fmt: skip
    length = tl.cdiv(tl.cdiv(num_inputs, BLOCK_K), PARTS) * BLOCK_K
    squares = tl.zeros((x_rows.shape[0], BLOCK_K if norm_weight is not None else 1), tl.float32)
    if norm_weight is not None:
        # Read a tile ahead: what is as narrow as factors passes no shared memory, and would be waited for.
        factors = factors_of(norm_weight, part * length, num_inputs, BLOCK_K)
    for start in range(part * length, tl.minimum((part + 1) * length, num_inputs), BLOCK_K):
        inputs = start + tl.arange(0, BLOCK_K)[None, :]
        if IS_EVEN:
            weight_tile, x_tile = tl.load(weight_lines[:, None] + inputs), tl.load(x_rows[:, None] + inputs)
        else:
            is_input = inputs < num_inputs
            weight_tile = tl.load(weight_lines[:, None] + inputs, mask=is_input, other=0)
            x_tile = tl.load(x_rows[:, None] + inputs, mask=is_input, other=0)
        if norm_weight is not None:
            ahead = factors_of(norm_weight, start + BLOCK_K, num_inputs, BLOCK_K)
            x_tile, squares = weighed(x_tile, factors, squares)
            factors = ahead
        weight_tile, x_tile = met(weight_tile, met_type), tl.trans(met(x_tile, met_type))
        sums = tl.dot(weight_tile, x_tile, sums, input_precision="ieee", out_dtype=sums.dtype)
    return sums, tl.sum(squares, 1)[None, :]
