"""Products of rows with weights as GPUs store them: [M, in] × [out, in]ᵀ + bias in x's dtype.

  linear_gpu     float weights; x is rounded to the weight's dtype before the product, unless it is a row alone
  linear_wint8   8-bit weights, rows as they come
  linear_wint4   4-bit weights in groups, rows as they come
  linear_int8    8-bit weights and rows quantized to 8 bits, each with a scale of its own
  linear_int4    4-bit weights in groups and rows quantized to 8 bits
  linear_dequantized   8-bit or 4-bit weights that are floats in x's dtype before they are multiplied

The bits of a row of an `_invariant` form depend on that row and the weight alone, not on how many rows there are; those
of quantized rows do in any case, since sums of integers are exact. The formulas promise nothing of the kind.
"""

from torch import Tensor

from ..gpu_weights import GpuWeight, unpacked
from ..registry import op
from .quantized import linear_quantized


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x.float() @ weight.float().T
    return (product if bias is None else product + bias.float()).to(x.dtype)


def _dequantized_product(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _product(x, unpacked(weight).dequantized(), bias)


@op(tolerance=2e-3)
def linear_gpu(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _product(x.to(weight.values.dtype).float(), weight.values, bias).to(x.dtype)


linear_gpu_invariant = linear_gpu.invariant()


@op(tolerance=1e-4)
def linear_wint8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


linear_wint8_invariant = linear_wint8.invariant()


@op(tolerance=1e-4)
def linear_wint4(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


linear_wint4_invariant = linear_wint4.invariant()


@op(tolerance=1e-4)
def linear_dequantized(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


@op(tolerance=1e-6)
def linear_int8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return linear_quantized(x, unpacked(weight), bias)


@op(tolerance=1e-5)
def linear_int4(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return linear_quantized(x, unpacked(weight), bias)
