"""Weights in blocks of ggml's types on GPUs: the numbers of the file, bit for bit, and products with them.

Also the very instructions that take bytes of 4 bits apart, of blocks and of int4, for every byte.
"""

from builders import interpreted  # isort: skip  before anything that imports triton

from itertools import cycle, product

import numpy
import pytest
import torch
import triton
import triton.language as tl
from builders.assembly import interprets_assembly  # noqa: F401  a fixture
from builders.cases import for_each
from builders.gpu_products import AROUND, CLOSE, CPU, assert_agrees, random_part
from builders.quantized_parts import draws, floats, quick
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.operands import WeightFormat
from penstock.kernels.reference import products as reference
from penstock.kernels.stored.block_kinds import CODES, KINDS
from penstock.kernels.stored.ggml_blocks import IQ4_VALUES, TYPES
from penstock.kernels.stored.quantized import QuantizedPart
from penstock.kernels.torch.packed.gpu_blocks import GpuBlocks, pack_blocks, unpacked_blocks
from penstock.kernels.triton.fused_operations import FusedOperations
from penstock.kernels.triton.operations import TritonOperations
from penstock.kernels.triton.products import dequantized, linear
from penstock.kernels.triton.products.few_rows import choice as few_rows_choice
from penstock.kernels.triton.products.linear import JoinedWeight
from penstock.kernels.triton.products.tiles.unpack_codes import (
    packed_above_two_to_23,
    packed_halves,
    packed_halves_of,
    packed_halves_with_plane,
    permuted,
)
from penstock.worker.ranks.parallel import Parallel

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TYPE_OF_KIND = {kind: type for type, kind in KINDS.items()}
QUICK_KINDS = ("q4_k", "q6_k", "q5_0", "q8_0", "iq4_nl")


def inputs_of(type: str, least: int) -> int:
    """As many inputs or some more, of whole blocks."""
    block = TYPES[type].block
    return -(-least // block) * block


def weight_of(type: str, outputs: int, least_inputs: int) -> GpuBlocks:
    return pack_blocks([random_part(type, outputs, inputs_of(type, least_inputs), seed=outputs)], CPU)


@quick
@given(st.sampled_from([*KINDS]), st.integers(1, 40), st.integers(1, 30), st.integers(1, 900))
def test_no_number_changes_when_blocks_are_taken_apart(type, first, second, least_inputs):
    inputs = inputs_of(type, least_inputs)
    parts = [random_part(type, first, inputs), random_part(type, second, inputs, seed=1)]
    weight = pack_blocks(parts, CPU)
    assert weight.kinds == (KINDS[type],) and (weight.out_features, weight.in_features) == (first + second, inputs)
    assert torch.equal(unpacked_blocks(weight), floats(*parts))


def test_rows_are_taken_apart_some_after_another(monkeypatch):
    parts = [random_part("Q5_K", outputs, 512, seed=outputs) for outputs in (7, 1, 12)]
    monkeypatch.setattr("penstock.kernels.torch.packed.gpu_blocks._NUMBERS_AT_ONCE", 5 * 512)
    assert torch.equal(unpacked_blocks(pack_blocks(parts, CPU)), floats(*parts))


# Bits of a weight, and of what the file has otherwise: scales of 6 bits get 8, a power of 2 gets 16.
BITS = {
    "Q4_0": 4.5, "Q5_1": 6, "Q8_0": 8.5, "Q4_K": 4.625, "Q5_K": 5.625, "Q6_K": 6.5625, "IQ4_XS": 4.3125, "MXFP4": 4.5,
}  # fmt: skip


@for_each("type", BITS)
def test_a_weight_takes_little_more_than_the_file(type):
    assert 8 * weight_of(type, 64, 1024).nbytes == BITS[type] * 64 * 1024


# A number is rounded to the rows' format behind what its kind does, so that few pairs show both.
@pytest.mark.parametrize(
    "kinds, least_inputs",
    [([*zip(QUICK_KINDS, cycle(DTYPES))], 256), pytest.param([*product(CODES, DTYPES)], 290, marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_a_tile_s_numbers_are_those_of_the_blocks_rounded_once(kinds, least_inputs):
    """A row that has a 1 and nothing else gives its input's numbers."""
    for kind, dtype in kinds:
        weight = weight_of(TYPE_OF_KIND[kind], 45, least_inputs)
        expected, rows = unpacked_blocks(weight).to(dtype), torch.eye(weight.in_features, dtype=dtype)
        for multiply in (linear.linear_invariant, dequantized.linear_dequantized):
            assert torch.equal(multiply(rows, weight, None).T, expected), (kind, dtype, multiply)
        few = linear.linear_weight_only(rows[-64:], weight, None)
        assert torch.equal(few.T, expected[:, -64:]), (kind, dtype)


def test_extreme_scales_and_powers_are_exact():
    part = random_part("MXFP4", 16, 1024)
    part.octets.reshape(-1, 17)[:, 0] = numpy.arange(512) % 250  # beyond, products of float32 are infinite
    weight = pack_blocks([part], CPU)
    found = dequantized.linear_dequantized(torch.eye(1024), weight, None).T
    assert torch.equal(found, floats(part))
    assert found[found != 0].abs().min() < torch.finfo(torch.float32).tiny


@pytest.mark.parametrize(
    "cases",
    [
        [(kind, rows, "normed, gated") for kind, rows in zip(QUICK_KINDS, cycle((1, 17)))],
        pytest.param([*product(CODES, (1, 8, 17), AROUND)], marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_a_product_of_few_rows_does_what_stands_around_it(cases):
    for kind, rows, around in cases:
        # A norm and a gate make much of what 16 bits round.
        weight, dtype = weight_of(TYPE_OF_KIND[kind], 70, 200), torch.float32 if "," in around else DTYPES[rows % 3]
        bias = draws(70, seed=1, dtype=dtype) if rows % 2 else None
        assert_agrees(reference.linear_few_rows, draws(rows, weight.in_features, dtype=dtype), weight, around, bias)


def test_a_row_has_the_same_bits_in_any_company():
    weight, x = weight_of("Q6_K", 40, 700), draws(70, 768, seed=1)
    together = linear.linear_invariant(x, weight, None)
    for first, end in ((0, 1), (69, 70), (3, 67)):
        alone = linear.linear_invariant(x[first:end], weight, None)
        assert torch.equal(alone, together[first:end]), f"{first}:{end}"


@pytest.mark.long
@for_each("kind", QUICK_KINDS)
def test_every_choice_that_is_tried_computes_the_product(kind, monkeypatch):
    weight = weight_of(TYPE_OF_KIND[kind], 80, 700)
    x, tuning = draws(65, weight.in_features), linear.TUNINGS[kind]
    expected = reference.linear_blocks.reference(x, weight, None)
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        found = linear.linear_weight_only(x, weight, None)
        torch.testing.assert_close(found, expected, rtol=0, atol=CLOSE[x.dtype] * float(expected.abs().max()))
    tuning = few_rows_choice.TUNINGS[kind]
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        for around in ("normed, gated", "added"):
            assert_agrees(reference.linear_few_rows, x[:3], weight, around)


PARTS = ("Q4_K", "Q4_K", "Q6_K", "Q8_0", "NVFP4", "MXFP4")


# A norm may wait for a product of few rows, and of no others.
@for_each("form, rows", [(TritonOperations, 70), (FusedOperations, 3)])
def test_parts_of_unlike_types_are_one_product(form, rows):
    ops = form(CPU, torch.float32, Parallel(), False)
    parts = [random_part(type, 20 + number, 256, seed=number) for number, type in enumerate(PARTS)]
    weight = ops.pack(parts, WeightFormat("q4_k"))
    assert isinstance(weight.weight, JoinedWeight)
    assert weight.kinds == ("q4_k", "q6_k", "q8_0", "fp32", "mxfp4")
    x, bias = draws(rows, 256), draws(sum(part.shape[0] for part in parts), seed=1)
    expected = x @ floats(*parts).T + bias
    stream, unit = draws(rows, 256, seed=2), torch.ones(256)
    torch.testing.assert_close(ops.linear(x, weight, bias), expected, rtol=1e-4, atol=1e-4)
    normed = ops.add_rms_norm(stream.clone(), None, unit, 1e-6)
    found = ops.linear(normed, weight, None)
    expected = torch.nn.functional.rms_norm(stream, (256,)) @ floats(*parts).T
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_numbers_beside_blocks_are_floats_of_the_rows_format():
    ops = TritonOperations(CPU, torch.bfloat16, Parallel(), False)
    assert ops.pack([draws(20, 96)], WeightFormat("q5_0")).weight.kind == "bf16"
    assert ops.pack([draws(20, 96), random_part("Q5_0", 9, 96)], WeightFormat("q5_0")).kinds == ("bf16", "q5_0")
    part = QuantizedPart(numpy.zeros((20, 96), numpy.int8), numpy.ones((20, 1), numpy.float32), None, 96)
    assert ops.pack([part], WeightFormat("bf16")).kinds == ("int8",)


with interpreted.interpretation():

    @triton.jit
    def _every_byte(lower, upper, table):
        octets = tl.arange(0, 256).to(tl.uint8)
        words = tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3)
        found_lower, found_upper = permuted(octets, words[0], words[1], words[2], words[3])
        tl.store(lower + tl.arange(0, 256), found_lower)
        tl.store(upper + tl.arange(0, 256), found_upper)

    @triton.jit
    def _every_half(octets, lower, upper, floats):
        places = tl.arange(0, 256)
        found_lower, found_upper = packed_halves_of(tl.load(octets + places))
        tl.store(lower + places, found_lower)
        tl.store(upper + places, found_upper)
        tl.store(floats + places, packed_above_two_to_23(tl.load(octets + places)).to(tl.float32, bitcast=True))

    @triton.jit
    def _every_plane(octets, plane, lower, upper, place, WIDTH: tl.constexpr):
        places = tl.arange(0, 256)
        found = packed_halves_with_plane(tl.load(octets + places), tl.load(plane + places), place, 8 - WIDTH, WIDTH)
        tl.store(lower + places, found[0])
        tl.store(upper + places, found[1])

    @triton.jit
    def _every_byte_with_every_zero(lower, upper):
        octets, zeros = tl.arange(0, 256)[None, :].to(tl.uint8), tl.arange(0, 16)[:, None].to(tl.float32)
        octets = tl.broadcast_to(octets, (16, 256))
        places = tl.arange(0, 16)[:, None] * 256 + tl.arange(0, 256)[None, :]
        # The upper halves meet the zeros in the opposite order, so that the two can't be mistaken.
        found_lower, found_upper = packed_halves(octets, zeros, 15 - zeros, lower.dtype.element_ty)
        tl.store(lower + places, found_lower)
        tl.store(upper + places, found_upper)


BYTES = torch.arange(256, dtype=torch.uint8)


def test_the_instructions_that_take_bytes_apart_or_look_halves_up_find_each_of_them(interprets_assembly):  # noqa: F811
    lower, upper = torch.empty(2, 256, dtype=torch.uint8).unbind()
    table, floats = (torch.tensor(IQ4_VALUES) + 128).to(torch.uint8), torch.empty(256)
    _every_byte[(1,)](lower, upper, table.view(torch.int32))
    assert torch.equal(lower, table[BYTES.long() % 16]) and torch.equal(upper, table[BYTES.long() // 16])
    _every_half[(1,)](BYTES, lower, upper, floats)
    assert torch.equal(lower, BYTES % 16) and torch.equal(upper, BYTES // 16)
    assert torch.equal(floats, BYTES + 2.0**23), "each byte as a float"


@for_each("width, place", [(1, 0), (1, 5), (2, 0), (2, 4)])
def test_the_instructions_that_put_bits_above_halves_find_each_of_them(width, place, interprets_assembly):  # noqa: F811
    lower, upper = torch.empty(2, 256, dtype=torch.uint8).unbind()
    plane = torch.randint(0, 256, (256,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    _every_plane[(1,)](BYTES, plane, lower, upper, place, WIDTH=width)
    assert torch.equal(lower, BYTES % 16 + 16 * (plane >> place & (1 << width) - 1))
    assert torch.equal(upper, BYTES // 16 + 16 * (plane >> 8 - width))


@for_each("dtype", [torch.bfloat16, torch.float16])
def test_every_byte_of_int4_is_taken_apart_exactly_with_every_zero(dtype, interprets_assembly):  # noqa: F811
    lower, upper = torch.empty(2, 16, 256, dtype=dtype).unbind()
    _every_byte_with_every_zero[(1,)](lower, upper)
    octets, zeros = torch.arange(256)[None, :], torch.arange(16)[:, None]
    assert torch.equal(lower.long(), octets % 16 - zeros)
    assert torch.equal(upper.long(), octets // 16 - (15 - zeros))
