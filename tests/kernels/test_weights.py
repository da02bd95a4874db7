"""Weights as layers use them: a quantized checkpoint's and a GGUF file's, side by side and gated.

What a kernel multiplies is taken over as it is, and the rest becomes int8, on processors and on GPUs. Experts are in
test_cpu_experts.py.
"""

import torch
from builders.cases import for_each
from builders.gpu_products import random_part
from builders.native_variants import needs_variant
from builders.quantized_parts import (
    WITHOUT_A_PRODUCT,
    draws,
    equal,
    floats,
    pack,
    pack_experts,
    pack_parts,
    part,
    quick,
)
from builders.recorded_layers import OneCall
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.weights.blocks import JoinedWeight, unpacked_blocks
from penstock.kernels.cpu.weights.packed import BLOCK_KINDS, NativeWeight
from penstock.kernels.cpu.weights.quantized import OrderedWeight, unpacked, unpacked_mxfp4
from penstock.kernels.reference.quantized import quantize_int4, quantize_int8, quantize_rows
from penstock.kernels.stored.parts import WeightPart
from penstock.kernels.stored.quantized import QuantizedPart
from penstock.kernels.torch.arrays import tensor_of
from penstock.kernels.torch.packed import gpu_weights
from penstock.kernels.torch.packed.gpu_weights import GpuWeight

pytestmark = needs_variant
GROUPS = (32, 64, 128, 256, 384, 1000)  # that native kernels multiply
FLOATS = WeightFormat("bf16")


def packed(*parts: WeightPart) -> NativeWeight:
    return pack_parts(parts, "fp32", 0)


def on_gpus(*parts: WeightPart, form: WeightFormat = FLOATS) -> GpuWeight:
    return gpu_weights.pack(parts, form, torch.device("cpu"))


def linear(x: Tensor, weight: NativeWeight, bias: Tensor | None = None) -> Tensor:
    call = OneCall(len(x), len(x))
    found = call.given("linear", [call.buffer("x", x), weight, bias])
    assert isinstance(found, Tensor)
    return found


def in_8_bits(x: Tensor, group: int) -> Tensor:
    values, scales = quantize_rows(x.view(-1, group))
    return (values.float() * scales[:, None]).view(x.shape)


# --- of quantized checkpoints -----------------------------------------------------------------------------------------


@quick
@example(40, 30, 160, 32, True, False)  # what fills 160 inputs up to 192 would be a group of its own
@given(
    st.integers(1, 90), st.integers(1, 50), st.integers(1, 400), st.sampled_from((*GROUPS, 16, 48, 96)),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_four_bits_in_groups_are_taken_over_as_they_are(first, second, inputs, group_size, has_zeros, has_more_zeros):
    parts = [part(first, inputs, group_size, 4, has_zeros), part(second, inputs, group_size, 4, has_more_zeros, seed=1)]
    weight, expected = on_gpus(*parts), floats(*parts)
    assert weight.kind == "int4"
    assert torch.equal(gpu_weights.unpacked(weight).dequantized(), expected)
    if group_size in GROUPS:
        assert packed(*parts).kind == "int4"
        assert torch.equal(floats(unpacked(packed(*parts))), expected)


@quick
@given(
    st.integers(1, 90), st.integers(1, 50), st.integers(1, 400), st.sampled_from((32, 64, 96, 128, 256, 384, 1000)),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_eight_bits_keep_their_groups_and_zeros(first, second, inputs, group_size, has_zeros, more, is_ordered):
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs)).int() if is_ordered else None
    shape = (inputs, group_size, 8)
    parts = [part(first, *shape, has_zeros, order), part(second, *shape, more, order, seed=1)]
    weight = packed(*parts)
    if group_size >= inputs and not (has_zeros or more or is_ordered):  # one scale a row, and nothing else
        assert weight.kind == "int8"
        return
    assert isinstance(weight, OrderedWeight)
    held = unpacked(weight)
    met = QuantizedPart(held.values, held.scales, held.zeros, held.group_size, weight.order)
    assert torch.allclose(floats(met), floats(*parts), rtol=1e-6, atol=1e-4)


@quick
@given(st.integers(1, 90), st.integers(1, 50), st.integers(1, 300))
def test_eight_bits_with_a_scale_per_row_are_taken_over_as_they_are(first, second, inputs):
    parts = [part(each, inputs, inputs, 8) for each in (first, second)]
    native, weight, expected = packed(*parts), on_gpus(*parts), floats(*parts)
    assert (native.kind, weight.kind) == ("int8", "int8")
    assert torch.equal(floats(unpacked(native)), expected)
    assert torch.equal(gpu_weights.unpacked(weight).dequantized(), expected)


@for_each("parts", [(part(group_size=8),), (part(group_size=56, inputs=112),), *WITHOUT_A_PRODUCT])
def test_what_no_kernel_multiplies_becomes_int8_with_a_scale_per_row(parts):
    native, weight, expected = packed(*parts), on_gpus(*parts), quantize_int8(floats(*parts))
    assert (native.kind, weight.kind) == ("int8", "int8")
    assert torch.equal(tensor_of(unpacked(native).values), expected.values)
    assert torch.equal(gpu_weights.unpacked(weight).values, expected.values)


def test_the_order_of_activations_stays_with_the_weight():
    order = torch.randperm(128, generator=torch.Generator().manual_seed(3)).int()
    parts = [part(order=order), part(order=order.clone(), seed=1)]
    weight, natural = packed(*parts), torch.empty(80, 128)
    assert isinstance(weight, OrderedWeight)
    assert equal(weight.order, order)
    natural[:, order.long()] = floats(unpacked(weight))
    assert torch.equal(natural, floats(*parts))


@for_each("kind", ["int8", "int4", "bf16"])
def test_floats_are_packed_in_the_form_that_is_asked_for(kind):
    weight = draws(40, 128)
    assert equal(pack_parts([weight], kind, 64).data, pack([weight], kind, 64).data)


def test_scales_keep_their_format_on_gpus():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        parts = [part(dtype=dtype), part(dtype=dtype, seed=1)]
        assert on_gpus(*parts).scales.dtype == dtype
        mixed = [part(dtype=dtype), part(dtype=torch.float32, seed=1)]
        assert torch.equal(gpu_weights.unpacked(on_gpus(*mixed)).dequantized(), floats(*mixed))


def test_floats_become_the_reference_s_integers_on_gpus_or_stay_floats():
    matrix = draws(70, 200)
    for group_size in (32, 64, 128, 1000):
        weight, expected = (
            on_gpus(*matrix.split(35), form=WeightFormat("int4", group_size)),
            quantize_int4(matrix, group_size),
        )
        assert torch.equal(gpu_weights.unpacked(weight).values, expected.values), group_size
        assert torch.equal(gpu_weights.unpacked(weight).scales, expected.scales), group_size
    many = draws(5000, 16)  # more rows than are quantized at once
    assert torch.equal(on_gpus(many, form=WeightFormat("int8")).values, quantize_int8(many).values)
    for kind in ("fp32", "fp16", "bf16"):
        weight = on_gpus(*matrix.split(35), form=WeightFormat(kind))
        assert weight.kind == kind and weight.nbytes == weight.values.nbytes
        assert torch.equal(weight.values, matrix.to(weight.values.dtype))
    weight = on_gpus(draws(64, 256), form=WeightFormat("int4", 64))
    assert weight.nbytes == 64 * 256 // 2 + 2 * 64 * 4, "four bits take half a byte"


# --- of GGUF files ----------------------------------------------------------------------------------------------------


@for_each("type", ["Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q8_0", "IQ4_NL", "Q2_K", "IQ3_XXS", "TQ2_0"])
def test_a_recorded_product_quantizes_rows_as_its_weight_wants_them(type: str) -> None:
    own, x = random_part(type, 70, 512), draws(9, 512)
    weight = packed(own)
    assert weight.kind in BLOCK_KINDS and equal(unpacked_blocks(weight), floats(own))
    expected = in_8_bits(x, own.block.block) @ floats(own).T
    torch.testing.assert_close(linear(x, weight), expected, rtol=1e-4, atol=1e-4)


def test_parts_of_unlike_types_are_one_product() -> None:
    types = ("Q4_K", "Q4_K", "Q6_K", "Q8_0", "MXFP4", "Q5_0")
    parts: list[WeightPart] = [random_part(type, 33 + 7 * number, 512) for number, type in enumerate(types)]
    parts.append(draws(20, 512) / 8)
    x, bias = draws(13, 512), draws(sum(part.shape[0] for part in parts))
    weight = packed(*parts)
    assert isinstance(weight, JoinedWeight)
    assert [part.kind for part in weight.parts()] == ["q4_k", "q6_k", "q8_0", "mxfp4", "q5_0", "fp32"]
    found, first = linear(x, weight, bias), 0
    for own in parts:
        columns = slice(first, first + own.shape[0])
        assert torch.equal(found[:, columns], linear(x, packed(own), bias[columns])), first
        first = columns.stop


def test_what_no_block_kernel_multiplies_is_packed_as_the_numbers_that_it_is() -> None:
    weight = pack_parts([random_part("Q4_K", 40, 256), draws(40, 256).half()], "q4_k", 0)
    assert isinstance(weight, JoinedWeight)
    assert [part.kind for part in weight.parts()] == ["q4_k", "fp16"]
    assert pack_parts([random_part("NVFP4", 40, 256)], "bf16", 0).kind == "bf16"
    cut, x, published = draws(48, 128), draws(5, 128), random_part("MXFP4", 50, 320)
    for kind in BLOCK_KINDS:  # of a cut through blocks
        weight = pack_parts([cut], kind, 0)
        assert weight.kind == "fp32"
        torch.testing.assert_close(linear(x, weight), x @ cut.T, rtol=1e-4, atol=1e-4)
    assert packed(published).kind == "mxfp4"
    assert torch.equal(floats(unpacked_mxfp4(packed(published))), floats(published)), "the published order"


@for_each("types", [("Q4_K", "Q4_K"), ("Q4_K", "Q6_K"), ("Q8_0", "Q5_1"), ("MXFP4", "MXFP4")])
def test_a_gate_behind_a_product_takes_it_in_one_call(types: tuple[str, str]) -> None:
    x, width = draws(7, 256), 48
    weight = packed(*(random_part(type, width, 256, seed) for seed, type in enumerate(types)))
    call = OneCall(len(x), len(x))
    with call.ops.recording(call.program, call.step):
        rows = call.buffer("x", x)
        gated = call.ops.gate(call.ops.linear(rows, weight, None), "silu")
    assert [name for name, _ in call.program.calls if "gate" in name or "linear" in name] == [
        f"penstock_gated_linear_{weight.family}"
    ]
    call.program.replay()
    product = linear(x, weight)
    expected = torch.nn.functional.silu(product[:, :width]) * product[:, width:]
    torch.testing.assert_close(tensor_of(gated.rows(len(x))), expected, rtol=1e-5, atol=1e-6)


def test_a_gate_and_what_it_lets_through_may_be_of_unlike_types() -> None:
    parts = [[random_part("Q4_K", 64, 256, seed), random_part("Q6_K", 64, 256, seed)] for seed in range(2)]
    assert pack_experts(parts, 2, WeightFormat("fp32")).kind == "fp16"
