"""Products with ggml's blocks on a processor: the numbers of the file, and the formula's own bits in every variant."""

from ctypes import addressof, c_int32

import pytest
import torch
from builders.ggml_parts import HALVES, random_part
from builders.native_variants import available_variants, quick_or_long
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.block_kinds import KINDS_OF_TYPES
from penstock.kernels.cpu.layer import Embedding, Quantize, QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights import blocks as packing
from penstock.kernels.cpu.weights.blocks import pack_blocks
from penstock.kernels.cpu.weights.packed import BLOCK_KINDS, NativeWeight
from penstock.kernels.ggml_blocks import TYPES, GgmlBlocks
from penstock.kernels.ggml_part import GgmlPart
from penstock.kernels.reference.quantized import quantize_rows

VARIANTS = available_variants()
pytestmark = pytest.mark.skipif(not VARIANTS, reason="this processor executes none of the native variants")
quick = settings(max_examples=12, deadline=None, derandomize=True)
WITH_KERNELS = list(KINDS_OF_TYPES)


@pytest.fixture(params=quick_or_long(VARIANTS))
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quantized(library: Library, x: Tensor, group: int) -> QuantizedRows:
    rows, count = QuantizedRows.empty(*x.shape, group), c_int32(len(x))
    library.call("penstock_quantize", Quantize(addressof(count), x.data_ptr(), x.shape[1], rows.structure()))
    return rows


def product(library: Library, x: Tensor, weight: NativeWeight, bias: Tensor | None = None) -> Tensor:
    """The kernel's output, within a frame that nobody may write to."""
    framed, count = torch.full((len(x), weight.out_features + 3), 7.0), c_int32(len(x))
    rows = quantized(library, x, weight.row_group)
    library.call(
        "penstock_linear_blocks", linear_arguments(addressof(count), None, rows.structure(), weight, bias, framed)
    )
    assert (framed[:, weight.out_features :] == 7).all(), "columns beyond the output were written"
    return framed[:, : weight.out_features].contiguous()


def formula(x: Tensor, part: GgmlPart, bias: Tensor | None = None) -> Tensor:
    """Block by block: what is whole is exact, and each step behind it rounded as a fused float32 product is."""
    blocks, size = part.blocks(), part.block.block
    values, scales = quantize_rows(x.view(-1, size))
    values, scales = values.view(len(x), -1, size).double(), scales.view(len(x), -1)
    total = torch.zeros(len(x), len(part.octets))
    for index in range(values.shape[1]):
        total = _with_block(total, values[:, index], scales[:, index, None], blocks, index)
    return total if bias is None else total + bias


def _with_block(total: Tensor, x: Tensor, scales: Tensor, blocks: GgmlBlocks, index: int) -> Tensor:
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


@pytest.mark.parametrize("group", [32, 256])
def test_rows_are_quantized_in_groups_to_the_references_integers(library: Library, group: int) -> None:
    @quick
    @given(st.integers(1, 9), st.integers(1, 700), st.integers(-20, 20))
    def check(rows: int, features: int, exponent: int) -> None:
        x = draws(rows, features, seed=rows) * 10.0**exponent
        got = quantized(library, x, group)
        padded = torch.nn.functional.pad(x, (0, -features % group))
        values, scales = quantize_rows(padded.view(-1, group))
        assert torch.equal(got.values[:, :features], values.view(rows, -1)[:, :features])
        assert not got.values[:, features:].any(), "the rows' ends are not zeros"
        own = scales.view(rows, -1)
        assert torch.equal(got.scales[:, : own.shape[1]], own) and not got.scales[:, own.shape[1] :].any()
        pairs = got.values.view(rows, -1, 4, 2, 2).sum((2, 4), dtype=torch.int16)
        assert torch.equal(got.sums, pairs.contiguous().view(torch.int32).view(rows, -1))

    check()


@pytest.mark.parametrize("type", WITH_KERNELS)
def test_products_have_the_bits_of_the_formula(library: Library, type: str) -> None:
    @quick
    @given(st.integers(1, 40), st.integers(1, 150), st.integers(1, 5), st.booleans())
    def check(rows: int, outputs: int, blocks: int, has_bias: bool) -> None:
        part, bias = random_part(type, outputs, blocks * TYPES[type].block), draws(outputs) if has_bias else None
        x = draws(rows, part.shape[1], seed=rows)
        assert torch.equal(product(library, x, pack_blocks([part]), bias), formula(x, part, bias))

    check()


@pytest.mark.parametrize("type", WITH_KERNELS)
def test_the_largest_integers_do_not_overflow(library: Library, type: str) -> None:
    """Every bit of a block set, or none, and inputs of the largest size with any signs."""
    for octet in (0, 255):
        part = random_part(type, 33, 512)
        ordinary = part.octets.unflatten(1, (-1, part.block.nbytes))
        floats = {place: ordinary[..., place : place + 2].clone() for place in HALVES.get(type, ())}
        ordinary[torch.rand(ordinary.shape, generator=torch.Generator().manual_seed(1)) > 0.01] = octet
        for place, halves in floats.items():
            ordinary[..., place : place + 2] = halves
        x = torch.ones(3, 512) * torch.tensor([1.0, -1.0, 1.0])[:, None]
        x[2, 1::2] = -1
        torch.testing.assert_close(
            product(library, x, pack_blocks([part])), formula(x, part), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.parametrize("type", WITH_KERNELS)
def test_a_rows_bits_do_not_depend_on_company_or_threads(library: Library, type: str) -> None:
    weight, x = pack_blocks([random_part(type, 515, 512)]), draws(161, 512, seed=1)
    alone = torch.cat([product(library, row[None], weight) for row in x[:20]])
    try:
        for threads in (1, 2, 3):
            library.set_threads(threads)
            for rows in (*range(2, 15), 20):
                got = product(library, x[:rows], weight)
                assert torch.equal(got, alone[:rows]), f"{rows} rows, {threads} threads"
            got = product(library, x, weight)
            assert torch.equal(got[:20], alone), f"{threads} threads"
            assert torch.equal(product(library, x.flip(0), weight).flip(0), got), f"{threads} threads, backwards"
    finally:
        library.set_threads(1)


@pytest.mark.parametrize("type", WITH_KERNELS)
@pytest.mark.parametrize("variant", quick_or_long(VARIANTS[1:]))
def test_all_variants_give_the_same_bits(type: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part, x = random_part(type, 131, 512), draws(7, 512, seed=1)
    best = pack_blocks([part])
    assert torch.equal(product(load(variant), x, best), product(load(VARIANTS[0]), x, best))
    monkeypatch.setattr(packing, "load", lambda: load(variant))
    assert torch.equal(pack_blocks([part]).data, best.data)


@pytest.mark.parametrize("type", ["Q4_K", "Q8_0"])
def test_what_is_no_number_spoils_its_row_alone(library: Library, type: str) -> None:
    weight, x = pack_blocks([random_part(type, 40, 512)]), draws(3, 512)
    x[1, 17], x[2] = torch.inf, 0.0
    got = product(library, x, weight, draws(40))
    assert got[1].isnan().all() and got[0].isfinite().all() and torch.equal(got[2], draws(40))


@pytest.mark.parametrize("type", WITH_KERNELS)
def test_a_table_gives_the_numbers_of_the_file(library: Library, type: str) -> None:
    part = random_part(type, 70, 768)
    table, ids = pack_blocks([part.rows(0, 37), part.rows(37, 70)]), torch.tensor([3, 69, 0, 70, 37])
    found, count, place = torch.full((5, 768), 7.0), c_int32(5), torch.tensor([ids.data_ptr()])
    library.call("penstock_embedding", Embedding.of(addressof(count), place.data_ptr(), 0, table, found.data_ptr()))
    expected = part.dequantized()[ids.clamp(max=69)]
    expected[3] = 0
    assert torch.equal(found, expected)


@pytest.mark.parametrize("type", WITH_KERNELS)
def test_parts_pack_as_if_they_were_one(type: str) -> None:
    part = random_part(type, 103, 512)
    pieces = [part.rows(*span) for span in ((0, 1), (1, 51), (51, 103))]
    whole = pack_blocks([part])
    assert torch.equal(pack_blocks(pieces).data, whole.data)
    cut = part.columns(256, 512)
    assert torch.equal(pack_blocks([cut]).data, pack_blocks([GgmlPart(type, cut.octets.clone())]).data)
    bits, own_bits = 8 * whole.nbytes / (128 * 512), 8 * part.nbytes / (103 * 512)
    assert bits <= max(own_bits + 0.13, 5.2 if part.type == "Q2_K" else 4.6), f"{bits} bits a number"
