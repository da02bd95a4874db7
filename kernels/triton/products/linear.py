"""Products of rows with weights in every number format.

One kernel for many rows, for quantized ones, and for those whose bits must not depend on their company; few rows are
few_rows.py's. Where bits may depend on the number of rows, many rows meet floats by cuBLAS, and so do very many with
weights in fewer bits (dequantized.py).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ...operands import DTYPES, Kind
from ...reference import products, quantized
from ...stored.block_kinds import CODES
from ...torch.packed.gpu_weights import GpuWeight, half_block
from ..launch.tuning import Key, LaunchConfig, Tuning, architecture
from ..rows import block_of, warps_of
from .dequantized import linear_dequantized, serves
from .few_rows.few_rows import multiply_few
from .tiles.part_sums import as_kernels_take_it, is_even, sum_of_part
from .tiles.tiles import FEW_ROWS, corner, dividing, finish, launch, lines, num_parts, row_bucket

_INTERPRETED = LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, BLOCK_K=128, PARTS=2)
# An interpreted program takes as long as it has lines, whatever its tile: of a whole model's products few are best.
_OF_A_MODEL = 80  # outputs at least
_INTERPRETED_MODEL = LaunchConfig.of(BLOCK_M=64, BLOCK_N=1024, BLOCK_K=512, PARTS=1)

_SMALLEST = tl.constexpr(quantized.SMALLEST)
_ROUND = tl.constexpr(12582912.0)  # 1.5 × 2^23: added to a small number, leaves a whole one, halves to even


@triton.jit(do_not_specialize=["num_rows"])
def multiply(
    x, weight, output, partial, counters, row_scales, bias, num_rows, num_outputs, num_inputs, FORM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, IS_SPREAD: tl.constexpr, IS_EVEN: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    first_row, first_output = corner(num_rows, num_outputs, BLOCK_M, BLOCK_N)
    x_rows = lines(x, first_row, num_rows, num_inputs, BLOCK_M)
    own = tl.minimum(first_output + tl.arange(0, BLOCK_N), num_outputs - 1).to(tl.int64)
    zeros = tl.zeros((BLOCK_N, BLOCK_M), tl.int32 if x.dtype.element_ty == tl.int8 else tl.float32)
    if IS_SPREAD or PARTS == 1:
        sums, _ = sum_of_part(
            x_rows, weight, own, None, tl.program_id(1), num_inputs, zeros, FORM, BLOCK_K, PARTS, IS_EVEN
        )
    else:
        sums = zeros
        for part in range(PARTS):
            more, _ = sum_of_part(x_rows, weight, own, None, part, num_inputs, zeros, FORM, BLOCK_K, PARTS, IS_EVEN)
            sums += more
    scales = weight.scales if FORM.kind == "int8" else None
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
    x = x.contiguous() if weight.order is None else x.index_select(1, weight.order)
    shape = (len(x), weight.out_features, weight.in_features)
    tensors, form = as_kernels_take_it(weight)
    constants = {"FORM": form, "IS_EVEN": is_even(weight, choice)}
    return launch(multiply, (x, tensors), (row_scales, bias), shape, dtype, choice, **constants)


def _default(kind: Kind, architecture: int, key: Key) -> LaunchConfig:
    """The choice for a key (bytes of a row's number, rows, outputs, inputs, group size)."""
    width, rows, outputs, inputs, group = key
    if not architecture:
        return _INTERPRETED if outputs < _OF_A_MODEL or kind == "int4" else _INTERPRETED_MODEL
    if width == 4:  # not for matrix units
        return LaunchConfig.of(BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, PARTS=num_parts(outputs, inputs, 32), num_stages=3)
    if rows <= FEW_ROWS:
        parts = num_parts(outputs, inputs, 64)
        # Eight warps where their sums, of this part and of others, would not fit into four warps' registers; units from
        # 10.0 on have memory of their own for what blocks take.
        if kind in CODES:
            return LaunchConfig.of(4 if architecture >= 100 else 8, 3, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=0, PARTS=parts)
        if kind == "int4":
            return LaunchConfig.of(8, 4, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=0, PARTS=parts)
        if rows == FEW_ROWS:
            return LaunchConfig.of(8, 3, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=dividing(128, inputs), PARTS=parts)
        return LaunchConfig.of(4, 4, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=dividing(256 // width, inputs), PARTS=parts)
    if kind in CODES:
        return LaunchConfig.of(BLOCK_M=64, BLOCK_N=128, BLOCK_K=0, PARTS=1, num_stages=3)
    # If the two runs of a tile of int4 have different scales, both sums are held at once, so tiles are narrower.
    is_shared = kind != "int4" or group % (2 * half_block(group)) == 0
    block = dividing(128 // width, inputs)
    return LaunchConfig.of(8, 3, BLOCK_M=128 if is_shared else 64, BLOCK_N=128, BLOCK_K=block, PARTS=1)


def _choices(*tiles: tuple[int, int, int, int], block_k: int = 0) -> list[LaunchConfig]:
    """Of many rows: rows, outputs, warps and stages."""
    return [
        LaunchConfig.of(warps, stages, BLOCK_M=rows, BLOCK_N=outputs, BLOCK_K=block_k, PARTS=1)
        for rows, outputs, warps, stages in tiles
    ]


_FEW_ROWS_CHOICES = [
    *(LaunchConfig.of(BLOCK_M=16, BLOCK_N=32, BLOCK_K=256, PARTS=parts, num_stages=4) for parts in (1, 4)),
    *(LaunchConfig.of(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, PARTS=parts, num_stages=4) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, BLOCK_K=128, PARTS=parts, num_stages=3) for parts in (1, 2, 4)),
    LaunchConfig.of(BLOCK_M=16, BLOCK_N=128, BLOCK_K=128, PARTS=1, num_stages=4),
]
_MANY_ROWS_CHOICES = _choices((64, 128, 4, 4), (128, 128, 8, 3), block_k=64) + _choices((128, 128, 8, 3), block_k=128)
INTEGERS = Tuning("linear_int8", partial(_default, "int8"), [*_FEW_ROWS_CHOICES, *_MANY_ROWS_CHOICES])
_INT4_CHOICES = _choices((64, 64, 4, 4), (64, 128, 8, 3), (128, 128, 8, 3))
_BLOCKS_CHOICES = _choices((64, 64, 4, 4), (64, 128, 4, 3), (64, 128, 8, 3), (128, 128, 8, 3))
# Of rows as they come.
TUNINGS = {
    "int8": Tuning("linear_wint8", partial(_default, "int8"), _MANY_ROWS_CHOICES),
    "int4": Tuning("linear_wint4", partial(_default, "int4"), _INT4_CHOICES),
} | {kind: Tuning(f"linear_{kind}", partial(_default, kind), _BLOCKS_CHOICES) for kind in CODES}


def _key(x: Tensor, weight: GpuWeight, rows: int) -> Key:
    met = weight.values if weight.kind in DTYPES else x
    return (met.element_size(), rows, weight.out_features, weight.in_features, weight.group_size)


@products.linear_gpu.implement("triton")
def linear(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    if len(x) <= FEW_ROWS:
        return multiply_few(x, weight, bias)
    met = weight.values.dtype
    return F.linear(x.to(met), weight.values, None if bias is None else bias.to(met)).to(x.dtype)


@products.linear_wint8.implement("triton")
@products.linear_wint4.implement("triton")
@products.linear_blocks.implement("triton")
def linear_weight_only(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    if len(x) <= FEW_ROWS:
        return multiply_few(x, weight, bias)
    if serves(x):
        return linear_dequantized(x, weight, bias)
    compute = partial(_computed, x, weight, bias, None, x.dtype)
    return compute(TUNINGS[weight.kind].choice(_key(x, weight, row_bucket(len(x))), compute))


@products.linear_int8.implement("triton")
def linear_int8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    values, scales = quantize_rows(x)
    compute = partial(_computed, values, weight, bias, scales, x.dtype)
    return compute(INTEGERS.choice(_key(values, weight, row_bucket(len(x))), compute))


@products.linear_gpu_invariant.implement("triton")
@products.linear_wint8_invariant.implement("triton")
@products.linear_wint4_invariant.implement("triton")
@products.linear_blocks_invariant.implement("triton")
def linear_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    """One tile and one order of the inputs for any number of rows."""
    choice = _default(weight.kind, architecture(), _key(x, weight, FEW_ROWS))
    return _computed(x, weight, bias, None, x.dtype, choice)


Product = Callable[[Tensor, GpuWeight, Tensor | None], Tensor]  # of rows, a weight and its bias


class JoinedWeight(NamedTuple):
    """Weights of several kinds that act as one matrix: query and key in one, value in another."""

    products: tuple[Product, ...]
    weights: tuple[GpuWeight, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(weight.kind for weight in self.weights)


def linear_joined(x: Tensor, weight: JoinedWeight, bias: Tensor | None) -> Tensor:
    sizes = [each.out_features for each in weight.weights]
    biases = [None] * len(sizes) if bias is None else bias.split(sizes)
    return torch.cat([product(x, own, part) for product, own, part in zip(*weight, biases, strict=True)], 1)


@triton.jit
def _quantize(x, values, scales, width, BLOCK: tl.constexpr):
    """A program: one row, read once. Rounded as IEEE says, nothing fused, so the integers are any other machine's."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    numbers = tl.load(x + row * width + columns, mask=columns < width, other=0).to(tl.float32)
    magnitudes = tl.abs(numbers)
    is_finite = tl.max((magnitudes < float("inf")).to(tl.int32) ^ 1, 0) == 0
    magnitude = tl.max(tl.where(magnitudes < float("inf"), magnitudes, 0.0), 0)
    is_zero = magnitude < _SMALLEST
    inverse = tl.where(is_finite & (magnitude >= _SMALLEST), tl.div_rn(127.0, tl.where(is_zero, 1.0, magnitude)), 0.0)
    levels = tl.where(is_finite, numbers, 0.0) * inverse + _ROUND - _ROUND
    tl.store(values + row * width + columns, levels.to(tl.int8), mask=columns < width)
    scale = tl.where(is_zero, 0.0, tl.div_rn(magnitude, 127.0))
    tl.store(scales + row, tl.where(is_finite, scale, float("nan")))


@quantized.quantize_rows.implement("triton")
def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = x.shape
    values = torch.empty(rows, width, dtype=torch.int8, device=x.device)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        block = block_of(width)
        options = {"BLOCK": block, "num_warps": warps_of(block), "enable_fp_fusion": False}
        _quantize[(rows,)](x.contiguous(), values, scales, width, **options)
    return values, scales
