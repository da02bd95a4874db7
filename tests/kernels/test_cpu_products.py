"""Native products with floats and with 8- and 4-bit weights: right for every shape, the same bits in any company.

What is quantized has the same bits in every variant, too.
"""

from itertools import product as combinations

import pytest
import torch
from builders.cases import for_each
from builders.native_products import assert_free_of_company, embedded, product, quantized
from builders.native_variants import available_variants, computed_variant, needs_variant, quick_or_long
from builders.quantized_parts import draws, equal, floats, pack, part
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights import packed
from penstock.kernels.cpu.weights.packed import pack_int4_from, pack_int8_from
from penstock.kernels.cpu.weights.quantized import unpacked
from penstock.kernels.operands import Kind
from penstock.kernels.reference.quantized import linear_quantized, quantize_int4, quantize_int8, quantize_rows
from penstock.kernels.stored.quantized import QuantizedPart
from penstock.kernels.torch.arrays import tensor_of
from penstock.kernels.torch.parts import quantized_part, quantized_tensor

pytestmark = needs_variant
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INTEGERS = ("int8", "int4")
VARIANTS = available_variants()

quick = settings(max_examples=20)
shapes = st.tuples(st.integers(1, 40), st.integers(1, 150), st.integers(1, 400))  # rows, out, in
groups = st.sampled_from((32, 64, 128, 10_000))


def assert_floats_are_right(library: Library, kind: str, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Against the product in float64, to 1e-5 of what the terms add up to in size; fp16 as pairs of bf16 to 2^-15."""
    variant = computed_variant(library)
    got = product(library, x, pack([weight], kind), bias)
    is_rounding = kind == "bf16" and variant in ("amx", "avx512_bf16")
    x = x.bfloat16().double() if is_rounding else x.double()
    expected, size = x @ weight.double().T, x.abs() @ weight.double().abs().T
    if bias is not None:
        expected, size = expected + bias.double(), size + bias.double().abs()
    worst = ((got.double() - expected).abs() / size).max()
    limit = 2**-15 if (variant, kind) == ("amx", "fp16") else 1e-5
    assert worst <= limit, f"{variant} {kind} {tuple(got.shape)} × {x.shape[1]}: off by {worst:.2e}"


CPU = torch.device("cpu")


def assert_close(got: Tensor, x: Tensor, part: QuantizedPart, bias: Tensor | None = None) -> None:
    """To 1e-5 of what the terms add up to in size."""
    weight = quantized_tensor(part, CPU)
    expected = linear_quantized(x, weight, bias)
    size = x.abs() @ weight.dequantized().abs().T + (0 if bias is None else bias.abs()) + 1e-30
    worst = ((got - expected).abs() / size).max()
    assert worst <= 1e-5, f"{tuple(got.shape)} × {x.shape[1]}: off by {worst:.2e}"


@for_each("kind", DTYPES)
def test_float_products_are_right_for_every_shape(library: Library, kind: str) -> None:
    @quick
    @given(shapes, st.booleans())
    def check(shape: tuple[int, int, int], has_bias: bool) -> None:
        rows, out, inputs = shape
        bias = draws(out, seed=2) if has_bias else None
        assert_floats_are_right(library, kind, draws(rows, inputs), draws(out, inputs, seed=1).to(DTYPES[kind]), bias)

    check()
    for rows, out, inputs in ((1, 151_936 // 16, 128), (130, 96, 1024), (25, 64, 3072)):  # a model's
        assert_floats_are_right(library, kind, draws(rows, inputs), draws(out, inputs, seed=1).to(DTYPES[kind]))
    assert product(library, draws(0, 8), pack([draws(8, 8)], kind)).shape == (0, 8)


@for_each("kind", DTYPES)
def test_a_packed_weight_holds_the_nearest_numbers_of_all_its_parts(library: Library, kind: str) -> None:
    for source, features in combinations(DTYPES.values(), (1, 63, 130)):
        weight = draws(70, features, seed=1).to(source)
        both = pack([weight.t().contiguous().t(), weight[:, :features]], kind)
        expected = weight.to(DTYPES[kind]).float()
        assert torch.equal(embedded(library, torch.arange(140), both, 0, features), torch.cat([expected, expected]))


@for_each("kind", [*DTYPES, *INTEGERS])
def test_parts_pack_as_if_they_were_one(kind: Kind) -> None:
    whole = draws(103, 70)
    assert equal(pack(whole.split((1, 50, 17, 35)), kind).data, pack([whole], kind).data)
    assert equal(pack([whole.T.contiguous().T], kind).data, pack([whole], kind).data), "transposed in memory"


@for_each("kind, shape", [*((kind, (200, 321)) for kind in DTYPES), *combinations(INTEGERS, [(97, 200), (64, 3072)])])
def test_a_row_has_the_same_bits_alone_and_in_company(library: Library, kind: Kind, shape) -> None:
    weight, bias, x = pack([draws(*shape)], kind), draws(shape[0], seed=2), draws(161, shape[1], seed=1)
    run = lambda own: product(library, x[own], weight, bias)  # noqa: E731
    assert_free_of_company(library, run, 53, (*range(2, 15), 24, 25, 26, 37, 40, 53))
    assert_free_of_company(library, run, 161, (161,), (3,))


@for_each("kind", [*DTYPES, *INTEGERS])
def test_a_number_that_is_not_finite_stays_in_its_row(library: Library, kind: Kind) -> None:
    weight, bias, clean = pack([draws(40, 99)], kind), draws(40), draws(9, 99)
    expected = product(library, clean, weight)
    for wrong, place in combinations((torch.nan, torch.inf, -torch.inf), (0, 17, 98)):
        x = clean.clone()
        x[4, place] = wrong
        got = product(library, x, weight)
        assert not got[4].isfinite().any() and (kind in DTYPES or got[4].isnan().all()), (wrong, place)
        assert torch.equal(got[:4], expected[:4]) and torch.equal(got[5:], expected[5:]), (wrong, place)
    assert torch.equal(product(library, torch.zeros(1, 99), weight, bias)[0], bias), "a row of zeros gives the bias"


# --- integers ---------------------------------------------------------------------------------------------------------


@for_each("group", [0, 32, 256])
def test_rows_are_quantized_in_groups_or_whole_to_the_references_integers(library: Library, group: int) -> None:
    @quick
    @given(st.integers(1, 9), st.integers(1, 700), st.integers(-20, 20))
    def check(rows: int, features: int, exponent: int) -> None:
        x = draws(rows, features, seed=rows) * 10.0**exponent
        got = quantized(library, x, group)
        size = group or features
        values, scales = quantize_rows(torch.nn.functional.pad(x, (0, -features % size)).view(-1, size))
        assert torch.equal(got.values[:, :features], values.view(rows, -1)[:, :features])
        assert not got.values[:, features:].any(), "the rows' ends are not zeros"
        own, sums = scales.view(rows, -1), got.values.view(rows, -1, 32).sum(2, dtype=torch.int32)
        held = got.scales.view(rows, -1)
        assert torch.equal(held[:, : own.shape[1]], own) and not held[:, own.shape[1] :].any()
        if group:  # of pairs, two in a number
            pairs = got.values.view(rows, -1, 4, 2, 2).sum((2, 4), dtype=torch.int16)
            sums = pairs.contiguous().view(torch.int32).view(rows, -1)
        else:
            assert torch.equal(got.totals, values.sum(1, dtype=torch.int32))
        assert torch.equal(got.sums, sums)

    check()


@for_each("sign", [1, -1])
def test_sums_of_the_largest_integers_do_not_saturate(library: Library, sign: int) -> None:
    weight = torch.full((33, 4096), float(sign))
    for rows in (2, 9):  # few rows and several may be multiplied in different ways
        for kind, exact in (("int8", 1e-6), ("int4", 0.1)):
            got = product(library, torch.ones(rows, 4096), pack([weight], kind))
            torch.testing.assert_close(got, torch.full((rows, 33), 4096.0 * sign), rtol=exact, atol=0)


def test_products_of_quantized_floats_are_right_for_every_shape(library: Library) -> None:
    @quick
    @given(shapes, groups, st.sampled_from(list(DTYPES.values())), st.booleans())
    def check(shape: tuple[int, int, int], group_size: int, dtype: torch.dtype, has_bias: bool) -> None:
        rows, out, inputs = shape
        x, weight = draws(rows, inputs), draws(out, inputs, seed=1).to(dtype)
        bias = draws(out, seed=2) if has_bias else None
        assert_close(product(library, x, pack([weight], "int8"), bias), x, quantized_part(quantize_int8(weight)), bias)
        four = pack([weight], "int4", group_size)
        assert_close(product(library, x, four, bias), x, unpacked(four), bias)

    check()


def test_a_checkpoints_integers_are_multiplied_as_they_are(library: Library) -> None:
    def assert_right(four: QuantizedPart, x: Tensor) -> None:
        weight = pack_int4_from([(four.values, four.scales, four.zeros)], four.group_size)
        order = None if four.order is None else tensor_of(four.order)
        assert_close(product(library, x, weight, order=order), x, four)

    @quick
    @given(shapes, groups, st.booleans())
    def check(shape: tuple[int, int, int], group_size: int, has_zeros: bool) -> None:
        rows, out, inputs = shape
        x, eight = draws(rows, inputs), quantized_part(quantize_int8(draws(out, inputs)))
        assert_right(part(out, inputs, group_size, has_zeros=has_zeros), x)
        assert_close(product(library, x, pack_int8_from([(eight.values, eight.scales[:, 0])])), x, eight)

    check()
    order = torch.randperm(200, generator=torch.Generator().manual_seed(3)).int()
    assert_right(part(70, 200, 64, has_zeros=True, order=order), draws(5, 200))


@for_each("group_size", [32, 64, 128])
def test_int4_scales_are_as_good_as_the_references(group_size: int) -> None:
    weight = draws(64, 1000) * torch.logspace(-4, 2, 64)[:, None]
    error = (floats(unpacked(pack([weight], "int4", group_size))) - weight).square().sum(1)
    reference = (quantize_int4(weight, group_size).dequantized() - weight).square().sum(1)
    assert (error <= reference * 1.001).all(), (error / reference).max()


@pytest.mark.parametrize("variant", quick_or_long(VARIANTS[1:]))
def test_all_variants_pack_the_same_bytes_and_give_the_same_bits(variant: str, monkeypatch) -> None:
    x, matrix = draws(7, 520, seed=1), draws(131, 520)
    for kind in INTEGERS:
        best = pack([matrix], kind)
        assert torch.equal(product(load(variant), x, best), product(load(VARIANTS[0]), x, best)), kind
        with monkeypatch.context() as patch:
            patch.setattr(packed, "load", lambda: load(variant))
            assert equal(pack([matrix], kind).data, best.data), kind


def test_a_group_size_that_no_kernel_has_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="group_size=48 is not supported.*32, 64, 128"):
        pack([draws(8, 128)], "int4", 48)
