"""Products of rows with a weight matrix: [M, in] × [out, in]ᵀ + bias in x's dtype.

  linear         float weights as torch's products want them
  linear_gpu     float weights as GPUs store them; x is rounded to the weight's dtype, unless it is a row alone
  linear_wint8   8-bit weights, rows as they come
  linear_wint4   4-bit weights in groups, rows as they come
  linear_blocks  weights in blocks of ggml's types, whose numbers are rounded to x's dtype; rows as they come
  linear_int8    8-bit weights and rows quantized to 8 bits, each with a scale of its own
  linear_int4    4-bit weights in groups and rows quantized to 8 bits
  linear_float8  8-bit floats with scales by output or by block, and rows that become such floats
  linear_dequantized   8-bit or 4-bit weights, or blocks, that are floats in x's dtype before they are multiplied
  linear_few_rows      a product of few rows with what stands around it in a layer

The bits of a row of an `_invariant` form depend on that row and the weight alone, not on how many rows there are; those
of quantized rows do in any case, since sums of integers are exact. The formulas promise nothing of the kind.
"""

from torch import Tensor

from ..operands import DTYPES, Norm
from ..registry import Op, op
from ..torch.packed.gpu_blocks import GpuBlocks, unpacked_blocks
from ..torch.packed.gpu_float8 import Float8Weight, float8_rows
from ..torch.packed.gpu_weights import GpuWeight, unpacked
from ..torch.packed.torch_weights import PackedWeight
from .pointwise import gate, rms_norm
from .quantized import linear_quantized


@op(tolerance=1e-4)
def linear(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """[M, in] × [out, in]ᵀ + bias in x's dtype; all is rounded to the weight's dtype on the way."""
    product = x.to(weight.dtype).float() @ weight.plain().float().T
    if bias is not None:
        product += bias.to(weight.dtype).float()
    return product.to(weight.dtype).to(x.dtype)


linear_invariant = linear.invariant()


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
def linear_blocks(x: Tensor, weight: GpuBlocks, bias: Tensor | None) -> Tensor:
    return _product(x, unpacked_blocks(weight).to(x.dtype), bias)


linear_blocks_invariant = linear_blocks.invariant()


@op(tolerance=1e-4)
def linear_dequantized(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    formula = linear_blocks.reference if isinstance(weight, GpuBlocks) else _dequantized_product
    return formula(x, weight, bias)


@op(tolerance=1e-6)
def linear_int8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return linear_quantized(x, unpacked(weight), bias)


@op(tolerance=1e-2)  # results are 16-bit floats
def linear_float8(x: Tensor, weight: Float8Weight, bias: Tensor | None) -> Tensor:
    values, scales = float8_rows(x, weight.group)
    rows = values.float() * scales.repeat_interleave(weight.group, 1)
    return _product(rows, weight.floats(), bias).to(x.dtype)


@op(tolerance=1e-5)
def linear_int4(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return linear_quantized(x, unpacked(weight), bias)


@op(tolerance=2e-3)
def linear_few_rows(
    x: Tensor,
    weight: GpuWeight,
    bias: Tensor | None,
    norm: Norm | None = None,
    stream: Tensor | None = None,
    is_gated: bool = False,
    adds: bool = True,
) -> Tensor:
    """[rows, outputs] in x's dtype, half as many outputs of a gated product; the stream, if there is one.

      norm      x is the stream, and its norm meets the weight
      stream    the product is added to it, in place, or stored there unless it `adds`
      is_gated  the weight's outputs are a gate and what it lets through: silu(first half) × second half

    Rows are never quantized.
    """
    met = x if norm is None else rms_norm.reference(x, norm.weight, norm.epsilon)
    product = _of_kind(weight).reference(met, weight, bias)
    if is_gated:
        product = gate.reference(product, "silu")
    if stream is None:
        return product
    return stream.add_(product) if adds else stream.copy_(product)


def _of_kind(weight: GpuWeight) -> Op:
    if isinstance(weight, GpuBlocks):
        return linear_blocks
    return linear_gpu if weight.kind in DTYPES else linear_wint8
