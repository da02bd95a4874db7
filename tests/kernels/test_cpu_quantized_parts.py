"""Matrices of quantized checkpoints in the kernels' order: what a kernel multiplies is taken over, the rest is int8."""

import pytest
import torch
from builders.native_variants import available_variants
from builders.quantized_parts import WITHOUT_A_PRODUCT, draws, floats, part, quick
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu.weights.packed import NativeWeight, pack
from penstock.kernels.cpu.weights.quantized import OrderedWeight, pack_parts, unpacked
from penstock.kernels.quantized_part import QuantizedPart
from penstock.kernels.reference.quantized import quantize_int8

pytestmark = pytest.mark.skipif(not available_variants(), reason="there are no native kernels here")


def packed(*parts: QuantizedPart | Tensor) -> NativeWeight:
    return pack_parts(parts, "fp32", 0)


@quick
@example(40, 30, 160, 32, True, False)  # what fills 160 inputs up to 192 would be a group of its own
@given(
    st.integers(1, 90), st.integers(1, 50), st.integers(1, 400), st.sampled_from((32, 64, 128, 256, 384, 1000)),
    st.booleans(), st.booleans(),
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


@quick
@given(
    st.integers(1, 90), st.integers(1, 50), st.integers(1, 400), st.sampled_from((32, 64, 96, 128, 256, 384, 1000)),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_eight_bits_in_groups_or_with_zeros_keep_both(first, second, inputs, group_size, has_zeros, more, is_ordered):
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs)).int() if is_ordered else None
    shape = (inputs, group_size, 8)
    parts = [part(first, *shape, has_zeros, order), part(second, *shape, more, order, seed=1)]
    weight = packed(*parts)
    if weight.kind == "int8":  # one scale a row, and nothing else
        assert group_size >= inputs and not (has_zeros or more or is_ordered)
        return
    assert isinstance(weight, OrderedWeight)
    held = unpacked(weight)
    met = QuantizedPart(held.values, held.scales, held.zeros, held.group_size, weight.order)
    assert torch.allclose(met.dequantized(), floats(*parts), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("parts", [(part(group_size=16),), (part(group_size=48, inputs=144),), *WITHOUT_A_PRODUCT])
def test_what_no_kernel_multiplies_becomes_int8_with_a_scale_per_row(parts):
    weight, expected = packed(*parts), floats(*parts)
    assert weight.kind == "int8"
    assert torch.equal(unpacked(weight).values, quantize_int8(expected).values)


def test_the_order_of_activations_stays_with_the_weight():
    order = torch.randperm(128, generator=torch.Generator().manual_seed(3)).int()
    parts = [part(order=order), part(order=order.clone(), seed=1)]
    weight = packed(*parts)
    assert isinstance(weight, OrderedWeight)
    assert torch.equal(weight.order, order)
    natural = torch.empty(80, 128)
    natural[:, order.long()] = unpacked(weight).dequantized()
    assert torch.equal(natural, floats(*parts))


@pytest.mark.parametrize("kind", ["int8", "int4", "bf16"])
def test_floats_are_packed_in_the_form_that_is_asked_for(kind):
    weight = draws(40, 128)
    assert torch.equal(pack_parts([weight], kind, 64).data, pack([weight], kind, 64).data)


def test_a_product_with_dequantized_values_is_the_product_with_reordered_inputs():
    order = torch.randperm(128, generator=torch.Generator().manual_seed(3)).int()
    ordered, x = part(order=order, has_zeros=True), draws(5, 128)
    plain = QuantizedPart(ordered.values, ordered.scales, ordered.zeros, ordered.group_size)
    expected = x[:, order.long()] @ plain.dequantized().T
    assert torch.allclose(x @ ordered.dequantized().T, expected, rtol=1e-4, atol=1e-4)
