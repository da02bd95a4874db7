"""Matrices as GPUs keep them: what has a product is taken over exactly, the rest is int8."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import torch
from builders.cases import for_each
from builders.quantized_parts import WITHOUT_A_PRODUCT, draws, floats, part, quick
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.gpu_weights import GpuWeight, pack, unpacked
from penstock.kernels.operands import WeightFormat
from penstock.kernels.quantized_part import QuantizedPart
from penstock.kernels.reference.quantized import quantize_int4, quantize_int8


def packed(*parts: QuantizedPart | Tensor, form: WeightFormat = WeightFormat("bf16")) -> GpuWeight:  # noqa: B008
    return pack(parts, form, torch.device("cpu"))


@quick
@given(
    st.integers(1, 90), st.integers(1, 50), st.integers(1, 400),
    st.sampled_from((16, 32, 48, 64, 96, 128, 256, 384, 1000)), st.booleans(), st.booleans(),
)  # fmt: skip
def test_four_bits_in_groups_are_taken_over_as_they_are(first, second, inputs, group_size, has_zeros, has_more_zeros):
    parts = [part(first, inputs, group_size, 4, has_zeros), part(second, inputs, group_size, 4, has_more_zeros, seed=1)]
    weight = packed(*parts)
    assert weight.kind == "int4"
    assert torch.equal(unpacked(weight).dequantized(), floats(*parts))


@quick
@given(st.integers(1, 90), st.integers(1, 50), st.integers(1, 300))
def test_eight_bits_with_a_scale_per_row_are_taken_over_as_they_are(first, second, inputs):
    parts = [part(each, inputs, inputs, 8) for each in (first, second)]
    weight = packed(*parts)
    assert weight.kind == "int8"
    assert torch.equal(unpacked(weight).dequantized(), floats(*parts))


@for_each("parts", [(part(group_size=8),), (part(group_size=56, inputs=112),), *WITHOUT_A_PRODUCT])
def test_what_has_no_product_becomes_int8_with_a_scale_per_row(parts):
    weight, expected = packed(*parts), floats(*parts)
    assert weight.kind == "int8"
    assert torch.equal(unpacked(weight).values, quantize_int8(expected).values)


def test_scales_keep_their_format():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        parts = [part(dtype=dtype), part(dtype=dtype, seed=1)]
        assert packed(*parts).scales.dtype == dtype
        mixed = [part(dtype=dtype), part(dtype=torch.float32, seed=1)]
        assert torch.equal(unpacked(packed(*mixed)).dequantized(), floats(*mixed))


def test_floats_become_the_reference_s_integers_or_stay_floats():
    matrix = draws(70, 200)
    for group_size in (32, 64, 128, 1000):
        weight, expected = (
            packed(*matrix.split(35), form=WeightFormat("int4", group_size)),
            quantize_int4(matrix, group_size),
        )
        assert torch.equal(unpacked(weight).values, expected.values), group_size
        assert torch.equal(unpacked(weight).scales, expected.scales), group_size
    many = draws(5000, 16)  # more rows than are quantized at once
    assert torch.equal(packed(many, form=WeightFormat("int8")).values, quantize_int8(many).values)
    for kind in ("fp32", "fp16", "bf16"):
        weight = packed(*matrix.split(35), form=WeightFormat(kind))
        assert weight.kind == kind and weight.nbytes == weight.values.nbytes
        assert torch.equal(weight.values, matrix.to(weight.values.dtype))
    weight = packed(draws(64, 256), form=WeightFormat("int4", 64))
    assert weight.nbytes == 64 * 256 // 2 + 2 * 64 * 4, "four bits take half a byte"
