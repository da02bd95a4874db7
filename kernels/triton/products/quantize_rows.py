"""Rows as 8-bit integers, each with a scale of its own, bit for bit as the reference says.

One program a row, which it reads once. The steps are rounded as IEEE says and none are fused, so that a row has the
same integers as on any other machine.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...reference import quantized
from ..rows import block_of, warps_of

_SMALLEST = tl.constexpr(quantized.SMALLEST)
_ROUND = tl.constexpr(12582912.0)  # 1.5 × 2^23: added to a small number, leaves a whole one, halves to even


@triton.jit
def _quantize(x, values, scales, width, BLOCK: tl.constexpr):
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
