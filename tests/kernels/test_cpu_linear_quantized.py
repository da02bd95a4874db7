"""Products with 8- and 4-bit weights: right for every shape, the same bits in any company and in every variant."""

from ctypes import addressof, c_int32

import pytest
import torch
from builders.native_variants import available_variants, quick_or_long
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu.layer import Quantize, QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights import packed
from penstock.kernels.cpu.weights.packed import NativeWeight, pack, pack_int4_from, pack_int8_from
from penstock.kernels.cpu.weights.quantized import unpacked
from penstock.kernels.operands import Kind
from penstock.kernels.quantized_part import QuantizedPart
from penstock.kernels.reference.quantized import linear_quantized, quantize_int4, quantize_int8, quantize_rows

VARIANTS = available_variants()
pytestmark = pytest.mark.skipif(not VARIANTS, reason="this processor executes none of the native variants")

quick = settings(max_examples=15, deadline=None, derandomize=True)
shapes = st.tuples(st.integers(1, 40), st.integers(1, 150), st.integers(1, 400))  # rows, out, in
groups = st.sampled_from((32, 64, 128, 10_000))


@pytest.fixture(params=quick_or_long(VARIANTS))
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quantized(library: Library, x: Tensor, order: Tensor | None = None) -> QuantizedRows:
    rows, features = x.shape
    result = QuantizedRows.empty(rows, features)
    num_rows = c_int32(rows)
    library.call("penstock_quantize", Quantize(addressof(num_rows), x.data_ptr(), features, result.structure(order)))
    return result


def product(
    library: Library, x: Tensor, weight: NativeWeight, bias: Tensor | None = None, order: Tensor | None = None
) -> Tensor:
    """The kernel's output, within a frame that nobody may write to."""
    framed = torch.full((x.shape[0], weight.out_features + 3), 7.0)
    num_rows = c_int32(x.shape[0])
    rows = quantized(library, x, order)
    arguments = linear_arguments(addressof(num_rows), None, rows.structure(), weight, bias, framed)
    library.call(f"penstock_linear_{weight.kind}", arguments)
    assert (framed[:, weight.out_features :] == 7).all(), "columns beyond the output were written"
    return framed[:, : weight.out_features].contiguous()


def dequantized(weight: NativeWeight) -> Tensor:
    """[out, in]: rows of the identity are quantized without an error."""
    return product(load(), torch.eye(weight.in_features), weight).T


def assert_close(got: Tensor, x: Tensor, part: QuantizedPart, bias: Tensor | None = None) -> None:
    """To 1e-5 of what the terms add up to in size."""
    expected = linear_quantized(x, part, bias)
    size = x.abs() @ part.dequantized().abs().T + (0 if bias is None else bias.abs()) + 1e-30
    worst = ((got - expected).abs() / size).max()
    assert worst <= 1e-5, f"{tuple(got.shape)} × {x.shape[1]}: off by {worst:.2e}"


def random_int4(out: int, inputs: int, group_size: int, seed: int = 0) -> QuantizedPart:
    generator = torch.Generator().manual_seed(seed)
    num_groups = -(-inputs // group_size)
    values = torch.randint(0, 16, (out, inputs), generator=generator, dtype=torch.uint8)
    zeros = torch.randint(0, 16, (out, num_groups), generator=generator, dtype=torch.uint8)
    scales = torch.rand(out, num_groups, generator=generator).half()
    return QuantizedPart(values, scales, zeros, group_size)


def test_rows_are_quantized_to_the_references_integers(library: Library) -> None:
    @quick
    @given(st.integers(1, 9), st.integers(1, 300), st.integers(-20, 20))
    def check(rows: int, features: int, exponent: int) -> None:
        x = draws(rows, features, seed=rows) * 10.0**exponent
        values, scales = quantize_rows(x)
        got = quantized(library, x)
        assert torch.equal(got.values[:, :features], values) and torch.equal(got.scales, scales)
        assert not got.values[:, features:].any(), "the rows' ends are not zeros"
        assert torch.equal(got.totals, values.sum(1, dtype=torch.int32))
        assert torch.equal(got.sums, got.values.view(rows, -1, 32).sum(2, dtype=torch.int32))

    check()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 17, 98])
def test_a_row_with_something_not_finite_is_nan_and_its_neighbours_are_not(
    library: Library, wrong: float, place: int
) -> None:
    x = draws(3, 99)
    x[1, place] = wrong
    for kind in ("int8", "int4"):
        got = product(library, x, pack([draws(40, 99)], kind))
        assert got[1].isnan().all() and got[[0, 2]].isfinite().all(), kind


def test_a_row_of_zeros_gives_the_bias(library: Library) -> None:
    bias = draws(40)
    for kind in ("int8", "int4"):
        assert torch.equal(product(library, torch.zeros(1, 99), pack([draws(40, 99)], kind), bias)[0], bias), kind


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_int8_products_are_right_for_every_shape(library: Library, dtype: torch.dtype) -> None:
    @quick
    @given(shapes, st.booleans())
    def check(shape: tuple[int, int, int], has_bias: bool) -> None:
        rows, out, inputs = shape
        x, weight = draws(rows, inputs), draws(out, inputs, seed=1).to(dtype)
        bias = draws(out, seed=2) if has_bias else None
        assert_close(product(library, x, pack([weight], "int8"), bias), x, quantize_int8(weight), bias)

    check()


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_integers_do_not_saturate(library: Library, sign: int) -> None:
    x, weight = torch.ones(2, 4096), torch.full((33, 4096), float(sign))
    for kind, exact in (("int8", 1e-6), ("int4", 0.1)):
        got = product(library, x, pack([weight], kind))
        torch.testing.assert_close(got, torch.full((2, 33), 4096.0 * sign), rtol=exact, atol=0)


def test_int4_products_are_right_for_every_shape(library: Library) -> None:
    @quick
    @given(shapes, groups, st.booleans())
    def check(shape: tuple[int, int, int], group_size: int, has_bias: bool) -> None:
        rows, out, inputs = shape
        x, weight = draws(rows, inputs), pack([draws(out, inputs, seed=1)], "int4", group_size)
        bias = draws(out, seed=2) if has_bias else None
        assert_close(product(library, x, weight, bias), x, unpacked(weight), bias)

    check()


def test_a_checkpoints_integers_are_multiplied_as_they_are(library: Library) -> None:
    @quick
    @given(shapes, groups, st.booleans())
    def check(shape: tuple[int, int, int], group_size: int, has_zeros: bool) -> None:
        rows, out, inputs = shape
        x, part = draws(rows, inputs), random_int4(out, inputs, group_size)
        if not has_zeros:
            part = QuantizedPart(part.values, part.scales, None, group_size)
        weight = pack_int4_from([(part.values, part.scales, part.zeros)], group_size)
        assert_close(product(library, x, weight), x, part)
        eight = quantize_int8(draws(out, inputs))
        assert_close(product(library, x, pack_int8_from([(eight.values, eight.scales[:, 0])])), x, eight)

    check()


def test_inputs_of_an_act_order_checkpoint_are_reordered(library: Library) -> None:
    part, x = random_int4(70, 200, 64), draws(5, 200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(3)).to(torch.int32)
    part = QuantizedPart(part.values, part.scales, part.zeros, 64, order)
    weight = pack_int4_from([(part.values, part.scales, part.zeros)], 64)
    assert_close(product(library, x, weight, order=order), x, part)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_parts_pack_as_if_they_were_one(kind: str) -> None:
    whole = draws(103, 70)
    assert torch.equal(pack(whole.split((1, 50, 17, 35)), kind).data, pack([whole], kind).data)
    assert torch.equal(pack([whole.T.contiguous().T], kind).data, pack([whole], kind).data), "transposed in memory"


def test_parts_with_and_without_zeros_pack_together() -> None:
    with_zeros, without = random_int4(40, 128, 32), random_int4(40, 128, 32, seed=1)
    weight = pack_int4_from(
        [(with_zeros.values, with_zeros.scales, with_zeros.zeros), (without.values, without.scales, None)], 32
    )
    expected = torch.cat(
        (with_zeros.dequantized(), QuantizedPart(without.values, without.scales, None, 32).dequantized())
    )
    torch.testing.assert_close(dequantized(weight), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_int4_scales_are_as_good_as_the_references(group_size: int) -> None:
    weight = draws(64, 1000) * torch.logspace(-4, 2, 64)[:, None]
    error = (dequantized(pack([weight], "int4", group_size)) - weight).square().sum(1)
    reference = (quantize_int4(weight, group_size).dequantized() - weight).square().sum(1)
    assert (error <= reference * 1.001).all(), (error / reference).max()


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("shape", [(97, 200), (515, 1024), (64, 3072)])
def test_a_rows_bits_do_not_depend_on_company_or_threads(library: Library, kind: str, shape: tuple[int, int]) -> None:
    weight, x = pack([draws(*shape)], kind), draws(161, shape[1], seed=1)
    alone = torch.cat([product(library, row[None], weight) for row in x[:40]])
    try:
        for threads in (1, 2, 3):
            library.set_threads(threads)
            for rows in (*range(2, 15), 25, 40):
                got = product(library, x[:rows], weight)
                assert torch.equal(got, alone[:rows]), f"{rows} rows, {threads} threads"
            got = product(library, x, weight)
            assert torch.equal(got[:40], alone), f"{threads} threads"
            assert torch.equal(product(library, x.flip(0), weight).flip(0), got), f"{threads} threads, backwards"
    finally:
        library.set_threads(1)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("variant", quick_or_long(VARIANTS[1:]))
def test_all_variants_give_the_same_bits(kind: str, variant: str) -> None:
    weight, x = pack([draws(131, 520)], kind), draws(7, 520, seed=1)
    assert torch.equal(product(load(variant), x, weight), product(load(VARIANTS[0]), x, weight))


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("variant", quick_or_long(VARIANTS[1:]))
def test_all_variants_pack_the_same_bytes(kind: Kind, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = draws(131, 520)
    best = pack([weight], kind)
    monkeypatch.setattr(packed, "load", lambda: load(variant))
    assert torch.equal(pack([weight], kind).data, best.data)


def test_a_group_size_that_no_kernel_has_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="group_size=48 is not supported.*32, 64, 128"):
        pack([draws(8, 128)], "int4", 48)
