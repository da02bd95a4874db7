"""Native products with ggml's blocks and MXFP4: the numbers of the file, and the formula's bits in every variant."""

from types import SimpleNamespace

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.gpu_products import HALVES, random_part
from builders.native_products import embedded, product, quantized
from builders.native_variants import available_variants, needs_variant, quick_or_long
from builders.quantized_model import random_blocks
from builders.quantized_parts import draws, equal, floats, pack_parts
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights import blocks as packing
from penstock.kernels.cpu.weights.blocks import pack_blocks
from penstock.kernels.cpu.weights.packed import BLOCK_KINDS, pack_mxfp4
from penstock.kernels.cpu.weights.quantized import unpacked_mxfp4
from penstock.kernels.reference.quantized import quantize_rows
from penstock.kernels.stored.block_kinds import KINDS_OF_TYPES
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES, GgmlBlocks
from penstock.kernels.stored.mxfp4 import BLOCK, DOUBLED, Mxfp4Part
from penstock.kernels.torch.arrays import array_of, tensor_of

VARIANTS = available_variants()
pytestmark = needs_variant
quick = settings(max_examples=8)
WITH_KERNELS = list(KINDS_OF_TYPES)


def formula(x: Tensor, part: GgmlPart, bias: Tensor | None = None) -> Tensor:
    """Block by block: what is whole is exact, and each step behind it rounded as a fused float32 product is."""
    blocks, size = _as_tensors(part.blocks()), part.block.block
    values, scales = quantize_rows(x.view(-1, size))
    values, scales = values.view(len(x), -1, size).double(), scales.view(len(x), -1)
    total = torch.zeros(len(x), len(part.octets))
    for index in range(values.shape[1]):
        total = _with_block(total, values[:, index], scales[:, index, None], blocks, index)
    return total if bias is None else total + bias


def _as_tensors(blocks: GgmlBlocks) -> SimpleNamespace:
    return SimpleNamespace(**{name: each if each is None else tensor_of(each) for name, each in vars(blocks).items()})


def _with_block(total: Tensor, x: Tensor, scales: Tensor, blocks: SimpleNamespace, index: int) -> Tensor:
    codes, d = blocks.values[:, index].double(), blocks.d[:, index, 0]
    if blocks.scales is not None:
        codes = (codes.unflatten(1, (blocks.scales.shape[2], -1)) * blocks.scales[:, index, :, None]).flatten(1)
    total = _fused((x @ codes.T).float(), d * scales, total)
    if blocks.dmin is None:
        return total
    dmin, sums = blocks.dmin[:, index, 0], x.sum(1, keepdim=True)
    if blocks.mins is None:
        return _fused(-dmin, scales * sums.float(), total)
    taken = x.unflatten(1, (blocks.mins.shape[2], -1)).sum(2) @ blocks.mins[:, index].double().T
    return _fused(taken.float(), dmin * -scales, total)


def _fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (a.double() * b.double() + c.double()).float()


def test_all_types_but_floats_of_4_bits_have_a_kernel() -> None:
    assert set(TYPES) - set(KINDS_OF_TYPES) == {"MXFP4", "NVFP4"}
    assert set(KINDS_OF_TYPES.values()) == set(BLOCK_KINDS)


@for_each("type", [*WITH_KERNELS, "mxfp4"])
def test_products_have_the_bits_of_the_formula_whatever_the_company_and_the_threads(library: Library, type: str):
    size = BLOCK if type == "mxfp4" else TYPES[type].block

    @quick
    @given(st.integers(1, 71), st.integers(1, 200), st.integers(1, 9), st.booleans(), st.integers(1, 3))
    def check(rows: int, outputs: int, blocks: int, has_bias: bool, threads: int) -> None:
        x, bias = draws(rows, blocks * size, seed=rows), draws(outputs) if has_bias else None
        library.set_threads(threads)
        if type == "mxfp4":
            assert_mxfp4_has_the_bits_of_its_formula(library, x, mxfp4_of(outputs, blocks), bias)
        else:
            part = random_part(type, outputs, blocks * size)
            assert torch.equal(product(library, x, pack_blocks([part]), bias), formula(x, part, bias))

    try:
        check()
    finally:
        library.set_threads(1)


@for_each("type", WITH_KERNELS)
def test_the_largest_integers_do_not_overflow(library: Library, type: str) -> None:
    """Every bit of a block set, or none, and inputs of the largest size with any signs."""
    for octet in (0, 255):
        part = random_part(type, 33, 512)
        ordinary = part.octets.reshape(len(part.octets), -1, part.block.nbytes)
        halves_at = {place: ordinary[..., place : place + 2].copy() for place in HALVES.get(type, ())}
        ordinary[numpy.random.default_rng(1).random(ordinary.shape) > 0.01] = octet
        for place, halves in halves_at.items():
            ordinary[..., place : place + 2] = halves
        x = torch.ones(3, 512) * torch.tensor([1.0, -1.0, 1.0])[:, None]
        x[2, 1::2] = -1
        # Groups' sums on either side of what 16 bits hold, for codes of 4, 5 and 6 bits.
        near = (x * torch.arange(28.0, 76.0)[:, None, None]).flatten(0, 1)
        near[:, ::256] = 127
        for rows in (x, x.repeat(3, 1), near):  # few rows and several may be multiplied in different ways
            found = product(library, rows, pack_blocks([part]))
            torch.testing.assert_close(found, formula(rows, part), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("variant", quick_or_long(VARIANTS[1:]))
def test_all_variants_pack_the_same_bytes(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [random_part(type, 131, 512) for type in WITH_KERNELS]
    best = [pack_blocks([part]).data for part in parts]
    monkeypatch.setattr(packing, "load", lambda: load(variant))
    for part, data in zip(parts, best, strict=True):
        assert equal(pack_blocks([part]).data, data), part.type


@for_each("type", ["Q4_K", "Q8_0"])
def test_what_is_no_number_spoils_its_row_alone(library: Library, type: str) -> None:
    weight, x = pack_blocks([random_part(type, 40, 512)]), draws(3, 512)
    x[1, 17], x[2] = torch.inf, 0.0
    got = product(library, x, weight, draws(40))
    assert got[1].isnan().all() and got[0].isfinite().all() and torch.equal(got[2], draws(40))


@for_each("type", WITH_KERNELS)
def test_a_table_gives_the_numbers_of_the_file(library: Library, type: str) -> None:
    part = random_part(type, 70, 768)
    table, ids = pack_blocks([part.rows(0, 37), part.rows(37, 70)]), torch.tensor([3, 69, 0, 70, 37])
    expected = floats(part)[ids.clamp(max=69)]
    expected[3] = 0
    assert torch.equal(embedded(library, ids, table, 0, 768), expected)


@for_each("type", WITH_KERNELS)
def test_parts_pack_as_if_they_were_one(type: str) -> None:
    part = random_part(type, 103, 512)
    pieces = [part.rows(*span) for span in ((0, 1), (1, 51), (51, 103))]
    whole = pack_blocks([part])
    assert equal(pack_blocks(pieces).data, whole.data)
    cut = part.columns(256, 512)
    assert equal(pack_blocks([cut]).data, pack_blocks([GgmlPart(type, cut.octets.copy())]).data)
    bits, own_bits = 8 * whole.nbytes / (128 * 512), 8 * part.nbytes / (103 * 512)
    assert bits <= max(own_bits + 0.13, 5.2 if part.type == "Q2_K" else 4.6), f"{bits} bits a number"


# --- MXFP4, as it is published ----------------------------------------------------------------------------------------


def mxfp4_of(outputs: int, blocks: int, seed: int = 0) -> Mxfp4Part:
    return Mxfp4Part(*map(array_of, random_blocks((outputs, blocks), seed)))


def assert_mxfp4_has_the_bits_of_its_formula(library: Library, x: Tensor, part: Mxfp4Part, bias: Tensor | None) -> None:
    weight = pack_mxfp4([part])
    found, rows = product(library, x, weight, bias), quantized(library, x)
    expected = mxfp4_formula(rows.values, rows.scales, unpacked_mxfp4(weight), bias)
    assert torch.equal(found, expected) and found.isfinite().all()


def mxfp4_formula(values: Tensor, scales: Tensor, part: Mxfp4Part, bias: Tensor | None) -> Tensor:
    """Block by block, each step rounded as a fused float32 product is."""
    codes = tensor_of(numpy.stack((part.codes & 15, part.codes >> 4), -1)).flatten(2)
    doubled = torch.tensor(DOUBLED)[codes.long()].double()  # [out, blocks, 32]
    powers = 2.0 ** (tensor_of(part.exponents).double() - 128)
    total = torch.zeros(len(values), len(codes), dtype=torch.float32)
    for block in range(codes.shape[1]):
        sums = values[:, block * BLOCK : (block + 1) * BLOCK].double() @ doubled[:, block].T  # exact
        total = (sums * powers[:, block] + total.double()).float()
    scaled = total.double() * scales[:, None].double()
    return (scaled if bias is None else scaled + bias.double()).float()


def test_products_with_mxfp4_have_the_bits_of_the_formula_whatever_the_exponents(library: Library) -> None:
    for exponent in (0, 1, 2, 126, 127, 230):
        part = mxfp4_of(40, 3)
        part.exponents[:, 1] = exponent
        assert_mxfp4_has_the_bits_of_its_formula(library, draws(3, 3 * BLOCK), part, None)


def test_a_block_that_is_no_number_spoils_its_output_alone(library: Library) -> None:
    part = mxfp4_of(40, 3)
    part.exponents[7, 1] = 255
    found = product(library, draws(3, 3 * BLOCK), pack_mxfp4([part]))
    assert not found[:, 7].isfinite().any() and found[:, [6, 8]].isfinite().all()


def test_mxfp4_is_taken_over_as_it_is_from_any_view() -> None:
    whole = mxfp4_of(90, 7)
    parts = [whole.every_second(0), whole.every_second(1)]
    weight = pack_parts(parts, "mxfp4", BLOCK)
    assert weight.kind == "mxfp4"
    found = unpacked_mxfp4(weight)
    assert numpy.array_equal(found.codes, numpy.concatenate([part.codes for part in parts]))
    assert numpy.array_equal(found.exponents, numpy.concatenate([part.exponents for part in parts]))
    cut = Mxfp4Part(whole.codes[:, 2:5], whole.exponents[:, 2:5])
    assert torch.equal(floats(unpacked_mxfp4(pack_mxfp4([cut]))), floats(whole)[:, 64:160])
    assert pack_mxfp4([mxfp4_of(64, 4)]).nbytes == 64 * 128 * 17 // 32, "a number takes 4 and a quarter bits"
