"""Products with 4-bit weights in groups of inputs; the rows stay as they come.

A tile of bytes holds two runs of neighbouring inputs (weights.py): its halves are taken apart in registers, centred on
their zeros, which is exact in every format, and meet the rows' two runs. The sums of a group are scaled as they are
added up, so that no weight is rounded to the rows' format.
"""

from collections.abc import Iterator
from functools import partial

import triton
import triton.language as tl
from torch import Tensor

from ..quantized_part import MIDDLE
from ..reference import products
from .compiled import Example
from .tiles import FEW_ROWS, corner, finish, finishing_types, launch, lines, met, met_halves, num_parts, row_bucket
from .tuning import Choice, Key, Tuning, architecture
from .weights import GpuWeight, half_block

_MIDDLE = tl.constexpr(MIDDLE)
_MANY_OUTPUTS = 16384  # enough for a tile of 128 on each multiprocessor
_INTERPRETED = Choice.of(BLOCK_M=64, BLOCK_N=64, PARTS=2)


@triton.jit
def _loaded(x_rows, start, num_inputs, HALF: tl.constexpr, IS_EVEN: tl.constexpr, met_type: tl.constexpr):
    """A run of the rows' inputs [HALF, rows]."""
    inputs = start + tl.arange(0, HALF)[None, :]
    if IS_EVEN:
        x_tile = tl.load(x_rows[:, None] + inputs)
    else:
        x_tile = tl.load(x_rows[:, None] + inputs, mask=inputs < num_inputs, other=0)
    return tl.trans(met(x_tile, met_type))


@triton.jit
def _scales_of(scales, block, GROUP: tl.constexpr, HALF: tl.constexpr):
    """Of a block's lower and upper half, for all outputs."""
    lower = tl.load(scales + block * 2 * HALF // GROUP)
    upper = lower if GROUP % (2 * HALF) == 0 else tl.load(scales + (block * 2 * HALF + HALF) // GROUP)
    return lower, upper


@triton.jit
def _zeros_of(zeros, start, like, GROUP: tl.constexpr):
    """Of the run of inputs from `start` on: [outputs, 1]."""
    if zeros is None:
        found = tl.full((like.shape[0], 1), _MIDDLE, tl.float32)
    else:
        found = tl.load(zeros + start // GROUP).to(tl.float32)[:, None]
    return found


@triton.jit
def _plus_scaled(product, scales, sums):
    return tl.fma(product, tl.broadcast_to(scales.to(tl.float32)[:, None], sums.shape), sums)


@triton.jit
def _sum_of_part(
    x_rows, octet_rows, scales, zeros, part, num_inputs, sums, GROUP: tl.constexpr, HALF: tl.constexpr,
    PARTS: tl.constexpr, IS_EVEN: tl.constexpr, met_type: tl.constexpr,
):  # fmt: skip
    """[outputs, rows] over one part of the inputs, beginning with zeros as `sums`."""
    blocks = tl.cdiv(num_inputs, 2 * HALF)
    length = tl.cdiv(blocks, PARTS)
    nothing = tl.zeros_like(sums)
    # Read a block ahead: what is as narrow as scales passes no shared memory, and would be waited for.
    lower_scales, upper_scales = _scales_of(scales, tl.minimum(part * length, blocks - 1), GROUP, HALF)
    for block in range(part * length, tl.minimum((part + 1) * length, blocks)):
        ahead = _scales_of(scales, tl.minimum(block + 1, blocks - 1), GROUP, HALF)
        start = block * 2 * HALF
        octets = tl.load(octet_rows[:, None] + block * HALF + tl.arange(0, HALF)[None, :])
        lower_x = _loaded(x_rows, start, num_inputs, HALF, IS_EVEN, met_type)
        upper_x = _loaded(x_rows, start + HALF, num_inputs, HALF, IS_EVEN, met_type)
        lower_zeros = _zeros_of(zeros, start, sums, GROUP)
        upper_zeros = lower_zeros if GROUP % (2 * HALF) == 0 else _zeros_of(zeros, start + HALF, sums, GROUP)
        lower_weight, upper_weight = met_halves(octets, lower_zeros, upper_zeros, met_type)
        product = tl.dot(lower_weight, lower_x, nothing, input_precision="ieee")
        if GROUP % (2 * HALF) == 0:
            product = tl.dot(upper_weight, upper_x, product, input_precision="ieee")
            sums = _plus_scaled(product, lower_scales, sums)
        else:
            sums = _plus_scaled(product, lower_scales, sums)
            product = tl.dot(upper_weight, upper_x, nothing, input_precision="ieee")
            sums = _plus_scaled(product, upper_scales, sums)
        lower_scales, upper_scales = ahead
    return sums


@triton.jit(do_not_specialize=["num_rows"])
def multiply_int4(
    x, values, group_scales, zeros, output, scales, row_scales, bias, num_rows, num_outputs, num_inputs,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr, PARTS: tl.constexpr,
    IS_SPREAD: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    first_row, first_output = corner(num_rows, num_outputs, BLOCK_M, BLOCK_N)
    met_type: tl.constexpr = x.dtype.element_ty
    x_rows = lines(x, first_row, num_rows, num_inputs, BLOCK_M)
    padded = tl.cdiv(num_inputs, 2 * HALF) * 2 * HALF
    octet_rows = lines(values, first_output, num_outputs, padded // 2, BLOCK_N)
    group_scales = lines(group_scales, first_output, num_outputs, tl.cdiv(padded, GROUP), BLOCK_N)
    if zeros is not None:
        zeros = lines(zeros, first_output, num_outputs, tl.cdiv(padded, GROUP), BLOCK_N)
    nothing = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    if IS_SPREAD or PARTS == 1:
        part = tl.program_id(1)
        output += part.to(tl.int64) * num_rows * num_outputs
        sums = _sum_of_part(
            x_rows, octet_rows, group_scales, zeros, part, num_inputs, nothing, GROUP, HALF, PARTS,
            IS_EVEN, met_type,
        )  # fmt: skip
    else:
        sums = nothing
        for part in range(PARTS):
            sums += _sum_of_part(
                x_rows, octet_rows, group_scales, zeros, part, num_inputs, nothing, GROUP, HALF, PARTS,
                IS_EVEN, met_type,
            )  # fmt: skip
    finish(sums, output, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs, BLOCK_M, BLOCK_N)


def _computed(x: Tensor, weight: GpuWeight, bias: Tensor | None, choice: Choice) -> Tensor:
    x = x.contiguous() if weight.order is None else x.index_select(1, weight.order)
    operands = (x, weight.values, weight.scales, weight.zeros)
    is_even = weight.in_features % (2 * weight.half) == 0
    constants = {"GROUP": weight.group_size, "HALF": weight.half, "IS_EVEN": is_even}
    shape = (x.shape[0], weight.out_features, weight.in_features)
    return launch(multiply_int4, operands, (None, None, bias), shape, x.dtype, choice, **constants)


def _default(architecture: int, key: Key) -> Choice:
    """For a key (bytes of a row's number, rows, outputs, inputs, group size)."""
    width, rows, outputs, inputs, group = key
    if not architecture:
        return _INTERPRETED
    # Where the two runs of a tile have scales of their own, their sums are held beside one another: narrower tiles.
    is_shared = group % (2 * half_block(group)) == 0
    if width == 4:  # not for matrix units
        return Choice.of(BLOCK_M=16, BLOCK_N=32, PARTS=num_parts(outputs, inputs, 32), num_stages=3)
    if rows <= FEW_ROWS:
        block_n = 128 if is_shared and rows == 16 and outputs >= _MANY_OUTPUTS else 64
        # More warps where sums of 64 rows, of a group and of a part, would not fit into four warps' registers.
        warps, parts = 8 if rows == 64 else 4, num_parts(outputs, inputs, block_n)
        return Choice.of(BLOCK_M=rows, BLOCK_N=block_n, PARTS=parts, num_warps=warps, num_stages=4)
    return Choice.of(BLOCK_M=128 if is_shared else 64, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3)


_CHOICES = [
    *(Choice.of(BLOCK_M=16, BLOCK_N=64, PARTS=parts, num_stages=5) for parts in (1, 2, 4, 8)),
    *(Choice.of(BLOCK_M=16, BLOCK_N=128, PARTS=parts, num_stages=4) for parts in (1, 4)),
    *(Choice.of(BLOCK_M=64, BLOCK_N=64, PARTS=parts, num_stages=4) for parts in (1, 2, 4)),
    Choice.of(BLOCK_M=64, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3),
    Choice.of(BLOCK_M=128, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3),
]
_TUNING = Tuning("linear_wint4", _default, _CHOICES)


def _key(x: Tensor, weight: GpuWeight, rows: int) -> Key:
    return (x.element_size(), rows, weight.out_features, weight.in_features, weight.group_size)


@products.linear_wint4.implement("triton")
def linear_wint4(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    compute = partial(_computed, x, weight, bias)
    return compute(_TUNING.choice(_key(x, weight, row_bucket(x.shape[0])), compute))


@products.linear_wint4_invariant.implement("triton")
def linear_wint4_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    """One tile and one order of the inputs for any number of rows."""
    return _computed(x, weight, bias, _default(architecture(), _key(x, weight, FEW_ROWS)))


def examples() -> Iterator[Example]:
    """The decode and the prompt steps of models from 0.6 to 8 billion weights, and the row-invariant tile."""
    few, many = (1024, 4096), (24576, 4096)
    for name, rows, shape, group, zeros in (
        ("16 rows, groups of 128 with zeros", 16, few, 128, {"zeros": "*u8"}),
        ("16 rows, groups of 64", 16, few, 64, {}),
        ("16 rows, groups of 32", 16, few, 32, {}),
        ("16 rows, many outputs, groups of 128", 16, many, 128, {}),
        ("64 rows or any, invariant, groups of 128", 64, few, 128, {}),
        ("many rows, groups of 128 with zeros", 512, many, 128, {"zeros": "*u8"}),
        ("many rows, groups of 64", 512, many, 64, {}),
    ):
        choice = _default(90, (2, rows, *shape, group))
        is_spread = rows == 16 and choice["PARTS"] > 1
        types, aligned = finishing_types("bf16", {}, is_spread)
        types |= {"x": "*bf16", "values": "*u8", "group_scales": "*fp16", **zeros}
        absent = {each: None for each in ("scales", "row_scales", "bias", "zeros") if each not in types}
        constants = {**dict(choice.blocks), **absent, "GROUP": group, "HALF": half_block(group)}
        constants |= {"IS_SPREAD": is_spread, "IS_EVEN": True}
        options = (choice.num_warps, choice.num_stages, (*aligned, "x", "values", "group_scales", *zeros))
        yield Example(f"product, int4, {name}", multiply_int4, types, constants, *options)
