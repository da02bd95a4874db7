"""Products of rows with weights as GPUs store them: [M, in] × [out, in]ᵀ + bias in x's dtype.

  linear_gpu     float weights; x is rounded to the weight's dtype before the product, unless it is a row alone
  linear_wint8   8-bit weights, rows as they come
  linear_wint4   4-bit weights in groups, rows as they come
  linear_int8    8-bit weights and rows quantized to 8 bits, each with a scale of its own
  linear_dequantized   8-bit or 4-bit weights that are floats in x's dtype before they are multiplied

The bits of a row of an `_invariant` form depend on that row and the weight alone, not on how many rows there are; those
of `linear_int8` do in any case, since sums of integers are exact. The references, held to the same figures, promise
nothing of the kind. Knows nothing of tiles or layers.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle

import torch
from torch import Tensor

from ..forms import WeightForm
from ..gpu_weights import GpuWeight, pack, unpacked
from ..quantized_part import QuantizedPart
from ..registry import op
from .quantized import linear_quantized

Inputs = Iterator[tuple[Tensor, GpuWeight, Tensor | None]]

_CPU = torch.device("cpu")
_SHAPES = ((1, 33, 64), (3, 70, 200), (17, 40, 144))


def _products(forms: Sequence[WeightForm], seed: int) -> Inputs:
    """One after another of the shapes, each with a weight of one after another of the forms."""
    generator = torch.Generator().manual_seed(seed)
    for form, (rows, out_features, in_features) in zip(forms, cycle(_SHAPES)):
        x = torch.randn(rows, in_features, generator=generator)
        weight = torch.randn(out_features, in_features, generator=generator)
        bias = torch.randn(out_features, generator=generator) if rows > 1 else None
        yield x, pack([weight], form, _CPU), bias


def _float_inputs(seed: int) -> Inputs:
    yield from _products([WeightForm("fp32")] * 3, seed)
    # Whole numbers, for versions may round in different ways to formats in which these are exact.
    halves = [WeightForm("fp16")] * 3 + [WeightForm("bf16")] * 3
    yield from ((x.round(), weight, bias) for x, weight, bias in _products(halves, seed))


def _int8_inputs(seed: int) -> Inputs:
    return _products([WeightForm("int8")] * 3, seed)


def _int4_inputs(seed: int) -> Inputs:
    yield from _products([WeightForm("int4", group_size) for group_size in (32, 48, 128, 1000)], seed)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 16, (50, 160), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 16, (50, 5), dtype=torch.uint8, generator=generator)
    scales = torch.rand(50, 5, generator=generator).half() / 16
    order = torch.randperm(160, generator=generator).int()
    part = QuantizedPart(values, scales, zeros, 32, order)
    yield torch.randn(5, 160, generator=generator), pack([part], WeightForm("fp32"), _CPU), None


def _integer_inputs(seed: int) -> Inputs:
    yield from _int8_inputs(seed)
    yield from _int4_inputs(seed)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x.float() @ weight.float().T
    return (product if bias is None else product + bias.float()).to(x.dtype)


def _float_product(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _product(x.to(weight.values.dtype).float(), weight.values, bias).to(x.dtype)


def _dequantized_product(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _product(x, unpacked(weight).dequantized(), bias)


@op(_float_inputs, tolerance=2e-3)
def linear_gpu(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _float_product(x, weight, bias)


@op(_float_inputs, tolerance=2e-3)
def linear_gpu_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _float_product(x, weight, bias)


@op(_int8_inputs, tolerance=1e-4)
def linear_wint8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


@op(_int8_inputs, tolerance=1e-4)
def linear_wint8_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


@op(_int4_inputs, tolerance=1e-4)
def linear_wint4(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


@op(_int4_inputs, tolerance=1e-4)
def linear_wint4_invariant(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


@op(_integer_inputs, tolerance=1e-4)
def linear_dequantized(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return _dequantized_product(x, weight, bias)


@op(_int8_inputs, tolerance=1e-6)
def linear_int8(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    return linear_quantized(x, unpacked(weight), bias)
