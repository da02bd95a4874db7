"""Products with 4-bit weights in groups of inputs; the rows stay as they come.

One kernel for many rows, and for those whose bits must not depend on their company; few rows are few_rows.py's,
very many dequantized.py's.
"""

from collections.abc import Iterator
from functools import partial

import triton
import triton.language as tl
from torch import Tensor

from ...reference import products
from ...torch.packed.gpu_weights import GpuWeight, half_block
from ..launch.compiled import Example
from ..launch.tuning import Key, LaunchConfig, Tuning, architecture
from .dequantized import linear_dequantized, serves
from .few_rows.few_rows import multiply_few
from .tiles.part_sums_int4 import sum_of_int4_part
from .tiles.tiles import FEW_ROWS, corner, finish, finishing_types, launch, lines, num_parts, row_bucket

_INTERPRETED = LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, PARTS=2)


@triton.jit(do_not_specialize=["num_rows"])
def multiply_int4(
    x, values, group_scales, zeros, output, partial, counters, scales, row_scales, bias, num_rows, num_outputs,
    num_inputs, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr,
    PARTS: tl.constexpr, IS_SPREAD: tl.constexpr, IS_EVEN: tl.constexpr,
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
        sums, _ = sum_of_int4_part(
            x_rows, octet_rows, group_scales, zeros, None, tl.program_id(1), num_inputs, nothing, GROUP, HALF, PARTS,
            IS_EVEN, met_type,
        )  # fmt: skip
    else:
        sums = nothing
        for part in range(PARTS):
            more, _ = sum_of_int4_part(
                x_rows, octet_rows, group_scales, zeros, None, part, num_inputs, nothing, GROUP, HALF, PARTS,
                IS_EVEN, met_type,
            )  # fmt: skip
            sums += more
    finish(
        sums, output, partial, counters, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs,
        PARTS, IS_SPREAD,
    )  # fmt: skip


def _computed(x: Tensor, weight: GpuWeight, bias: Tensor | None, choice: LaunchConfig) -> Tensor:
    x = x.contiguous() if weight.order is None else x.index_select(1, weight.order)
    operands = (x, weight.values, weight.scales, weight.zeros)
    is_even = weight.in_features % (2 * weight.half) == 0
    constants = {"GROUP": weight.group_size, "HALF": weight.half, "IS_EVEN": is_even}
    shape = (x.shape[0], weight.out_features, weight.in_features)
    return launch(multiply_int4, operands, (None, None, bias), shape, x.dtype, choice, **constants)


def _default(architecture: int, key: Key) -> LaunchConfig:
    """The choice for a key (bytes of a row's number, rows, outputs, inputs, group size)."""
    width, rows, outputs, inputs, group = key
    if not architecture:
        return _INTERPRETED
    # If the two runs of a tile have different scales, both sums are held at once, so tiles are narrower.
    is_shared = group % (2 * half_block(group)) == 0
    if width == 4:  # not for matrix units
        return LaunchConfig.of(BLOCK_M=16, BLOCK_N=32, PARTS=num_parts(outputs, inputs, 32), num_stages=3)
    if rows <= FEW_ROWS:
        # Eight warps, for sums of 64 rows, of a group and of a part, would not fit into four warps' registers.
        return LaunchConfig.of(8, 4, BLOCK_M=rows, BLOCK_N=64, PARTS=num_parts(outputs, inputs, 64))
    return LaunchConfig.of(BLOCK_M=128 if is_shared else 64, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3)


_CHOICES = [
    LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, PARTS=1, num_stages=4),
    LaunchConfig.of(BLOCK_M=64, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3),
    LaunchConfig.of(BLOCK_M=128, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3),
]
_TUNING = Tuning("linear_wint4", _default, _CHOICES)


def _key(x: Tensor, weight: GpuWeight, rows: int) -> Key:
    return (x.element_size(), rows, weight.out_features, weight.in_features, weight.group_size)


@products.linear_wint4.implement("triton")
def linear_wint4(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    if len(x) <= FEW_ROWS:
        return multiply_few(x, weight, bias)
    if serves(x):
        return linear_dequantized(x, weight, bias)
    compute = partial(_computed, x, weight, bias)
    return compute(_TUNING.choice(_key(x, weight, row_bucket(len(x))), compute))


@products.linear_wint4_invariant.implement("triton")
def linear_wint4_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    """One tile and one order of the inputs for any number of rows."""
    return _computed(x, weight, bias, _default(architecture(), _key(x, weight, FEW_ROWS)))


def examples() -> Iterator[Example]:
    """The prompt steps of models from 0.6 to 8 billion weights, and the row-invariant tile."""
    few, many = (1024, 4096), (24576, 4096)
    for name, rows, shape, group, zeros, is_spread in (
        ("few rows, invariant, groups of 128", FEW_ROWS, few, 128, {}, True),
        ("any rows, invariant, groups of 128", FEW_ROWS, few, 128, {}, False),
        ("many rows, groups of 128 with zeros", 512, many, 128, {"zeros": "*u8"}, False),
        ("many rows, groups of 64", 512, many, 64, {}, False),
    ):
        choice = _default(90, (2, rows, *shape, group))
        types, aligned = finishing_types("bf16", {}, "fp32" if is_spread else None)
        types |= {"x": "*bf16", "values": "*u8", "group_scales": "*fp16", **zeros}
        absent = {each: None for each in ("partial", "counters", "scales", "row_scales", "zeros") if each not in types}
        constants = {**dict(choice.blocks), **absent, "GROUP": group, "HALF": half_block(group)}
        constants |= {"IS_SPREAD": is_spread, "IS_EVEN": True}
        options = (choice.num_warps, choice.num_stages, (*aligned, "x", "values", "group_scales", *zeros))
        yield Example(f"product, int4, {name}", multiply_int4, types, constants, *options)
