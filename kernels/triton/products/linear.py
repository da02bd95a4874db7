"""Products with weights of a byte or more each: floats, 8-bit integers, and 8-bit integers on both sides.

One kernel for many rows, for quantized ones, and for those whose bits must not depend on their company; few rows are
few_rows.py's. What the results are multiplied with (scales of 8-bit values) waits until the sums are complete. Where
bits may depend on the number of rows, many rows meet floats by cuBLAS, and so do very many with 8-bit weights.
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ...reference import products
from ...torch.packed.gpu_weights import GpuWeight
from ..launch.compiled import Example
from ..launch.tuning import Key, LaunchConfig, Tuning, architecture
from .dequantized import linear_dequantized, serves
from .few_rows.few_rows import multiply_few
from .quantize_rows import quantize_rows
from .tiles.part_sums import sum_of_part
from .tiles.tiles import FEW_ROWS, corner, finish, finishing_types, launch, lines, num_parts, row_bucket

_INTERPRETED = LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, BLOCK_K=128, PARTS=2)
# An interpreted program takes as long as it has lines, whatever its tile: of a whole model's products few are best.
_OF_A_MODEL = 80  # outputs at least
_INTERPRETED_MODEL = LaunchConfig.of(BLOCK_M=64, BLOCK_N=1024, BLOCK_K=512, PARTS=1)


@triton.jit(do_not_specialize=["num_rows"])
def multiply(
    x, values, output, partial, counters, scales, row_scales, bias, num_rows, num_outputs, num_inputs,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr, IS_SPREAD: tl.constexpr,
    IS_EVEN: tl.constexpr,
):  # fmt: skip
    first_row, first_output = corner(num_rows, num_outputs, BLOCK_M, BLOCK_N)
    x_rows = lines(x, first_row, num_rows, num_inputs, BLOCK_M)
    weight_rows = lines(values, first_output, num_outputs, num_inputs, BLOCK_N)
    met_type: tl.constexpr = x.dtype.element_ty if values.dtype.element_ty == tl.int8 else values.dtype.element_ty
    zeros = tl.zeros((BLOCK_N, BLOCK_M), tl.int32 if met_type == tl.int8 else tl.float32)
    if IS_SPREAD or PARTS == 1:
        sums, _ = sum_of_part(
            x_rows, weight_rows, None, tl.program_id(1), num_inputs, zeros, BLOCK_K, PARTS, IS_EVEN, met_type
        )
    else:
        sums = zeros
        for part in range(PARTS):
            more, _ = sum_of_part(x_rows, weight_rows, None, part, num_inputs, zeros, BLOCK_K, PARTS, IS_EVEN, met_type)
            sums += more
    finish(
        sums, output, partial, counters, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs,
        PARTS, IS_SPREAD,
    )  # fmt: skip


def _computed(
    x: Tensor,
    weight: GpuWeight,
    bias: Tensor | None,
    row_scales: Tensor | None,
    dtype: torch.dtype,
    choice: LaunchConfig,
) -> Tensor:
    """The product, `x` quantized already if it has scales."""
    shape = (x.shape[0], weight.out_features, weight.in_features)
    is_even = weight.in_features % choice["BLOCK_K"] == 0
    finishing = (weight.scales, row_scales, bias)
    operands = (x.contiguous(), weight.values)
    return launch(multiply, operands, finishing, shape, dtype, choice, IS_EVEN=is_even)


def _default(architecture: int, key: Key) -> LaunchConfig:
    """The choice for a key (bytes of a row's number, rows, outputs, inputs)."""
    width, rows, outputs, inputs = key
    if not architecture:
        return _INTERPRETED if outputs < _OF_A_MODEL else _INTERPRETED_MODEL
    if width == 4:  # not for matrix units
        return LaunchConfig.of(BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, PARTS=num_parts(outputs, inputs, 32), num_stages=3)
    if rows <= FEW_ROWS:
        parts = num_parts(outputs, inputs, 64)
        if rows == FEW_ROWS:  # their sums, of this part and of others, would not fit into four warps' registers
            return LaunchConfig.of(8, 3, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=128, PARTS=parts)
        return LaunchConfig.of(4, 4, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=256 // width, PARTS=parts)
    return LaunchConfig.of(BLOCK_M=128, BLOCK_N=128, BLOCK_K=128 // width, PARTS=1, num_warps=8, num_stages=3)


_FEW_ROWS_CHOICES = [
    *(LaunchConfig.of(BLOCK_M=16, BLOCK_N=32, BLOCK_K=256, PARTS=parts, num_stages=4) for parts in (1, 4)),
    *(LaunchConfig.of(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, PARTS=parts, num_stages=4) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, BLOCK_K=128, PARTS=parts, num_stages=3) for parts in (1, 2, 4)),
    LaunchConfig.of(BLOCK_M=16, BLOCK_N=128, BLOCK_K=128, PARTS=1, num_stages=4),
]
_MANY_ROWS_CHOICES = [
    LaunchConfig.of(BLOCK_M=64, BLOCK_N=128, BLOCK_K=64, PARTS=1, num_stages=4),
    LaunchConfig.of(BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, PARTS=1, num_warps=8, num_stages=3),
    LaunchConfig.of(BLOCK_M=128, BLOCK_N=128, BLOCK_K=128, PARTS=1, num_warps=8, num_stages=3),
]
_WEIGHT_ONLY = Tuning("linear_wint8", _default, _MANY_ROWS_CHOICES)
_INTEGERS = Tuning("linear_int8", _default, [*_FEW_ROWS_CHOICES, *_MANY_ROWS_CHOICES])


def _met_width(x: Tensor, weight: GpuWeight) -> int:
    return (x if weight.kind == "int8" else weight.values).element_size()


def _fastest(
    tuning: Tuning, x: Tensor, weight: GpuWeight, bias: Tensor | None, row_scales: Tensor | None, dtype: torch.dtype
) -> Tensor:
    compute = partial(_computed, x, weight, bias, row_scales, dtype)
    key = (_met_width(x, weight), row_bucket(x.shape[0]), weight.out_features, weight.in_features)
    return compute(tuning.choice(key, compute))


@products.linear_gpu.implement("triton")
def linear(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    if len(x) <= FEW_ROWS:
        return multiply_few(x, weight, bias)
    met = weight.values.dtype
    return F.linear(x.to(met), weight.values, None if bias is None else bias.to(met)).to(x.dtype)


@products.linear_wint8.implement("triton")
def linear_wint8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    if len(x) <= FEW_ROWS:
        return multiply_few(x, weight, bias)
    if serves(x):
        return linear_dequantized(x, weight, bias)
    return _fastest(_WEIGHT_ONLY, x, weight, bias, None, x.dtype)


@products.linear_int8.implement("triton")
def linear_int8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    values, scales = quantize_rows(x)
    return _fastest(_INTEGERS, values, weight, bias, scales, x.dtype)


@products.linear_gpu_invariant.implement("triton")
@products.linear_wint8_invariant.implement("triton")
def linear_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    """One tile and one order of the inputs for any number of rows."""
    key = (_met_width(x, weight), FEW_ROWS, weight.out_features, weight.in_features)
    return _computed(x, weight, bias, None, x.dtype, _default(architecture(), key))


def examples() -> Iterator[Example]:
    """Prompt steps of models from 0.6 to 8 billion weights, few quantized rows, and the row-invariant tile."""
    few, many = (16, 1024, 4096), (512, 24576, 4096)
    for name, x, values, finishing in (
        ("bf16", "bf16", "bf16", {}),
        ("wint8", "bf16", "i8", {"scales": "*fp32"}),
        ("int8", "i8", "i8", {"scales": "*fp32", "row_scales": "*fp32"}),
    ):
        width = 1 if x == "i8" else 2
        few_rows = [("few rows", _default(90, (width, *few)), True)] if width == 1 else []
        many_rows = [("many rows", _default(90, (width, *many)), False)] if finishing else []  # floats' are cuBLAS's
        invariant = _default(90, (width, FEW_ROWS, *few[1:]))
        for rows, choice, is_spread in (
            *few_rows,
            ("few rows, invariant", invariant, True),
            ("any rows, invariant", invariant, False),
            *many_rows,
        ):
            yield _example(f"{name}, {rows}", choice, is_spread, {"x": f"*{x}", "values": f"*{values}"}, finishing)
    yield _example("fp32", _default(90, (4, *few)), True, {"x": "*fp32", "values": "*fp32"}, {})


def _example(
    name: str, choice: LaunchConfig, is_spread: bool, operands: dict[str, str], finishing: dict[str, str]
) -> Example:
    sums = ("i32" if operands["x"] == "*i8" else "fp32") if is_spread else None
    types, aligned = finishing_types("bf16", finishing, sums)
    absent = {each: None for each in ("partial", "counters", "scales", "row_scales") if each not in types}
    constants = {**dict(choice.blocks), **absent, "IS_SPREAD": is_spread, "IS_EVEN": True}
    return Example(
        f"product, {name}", multiply, {**operands, **types}, constants, choice.num_warps, choice.num_stages,
        (*operands, *aligned),
    )  # fmt: skip
