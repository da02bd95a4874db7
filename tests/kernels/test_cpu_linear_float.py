"""Products with weights stored as floats: right for every shape, and the same bits whatever a row's company."""

from ctypes import addressof, c_int32

import pytest
import torch
from builders.native_variants import available_variants, quick_or_long
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels.cpu.layer import Embedding, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.weights.packed import NativeWeight, pack

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KINDS = tuple(DTYPES)
# Float products have three forms; other variants differ from one of these in their integer products only.
VARIANTS = [name for name in ("amx", "avx512_bf16", "avx512", "avx2") if name in available_variants()]
pytestmark = pytest.mark.skipif(not VARIANTS, reason="this processor executes none of the native variants")

quick = settings(max_examples=25, deadline=None, derandomize=True)
shapes = st.tuples(st.integers(1, 40), st.integers(1, 150), st.integers(1, 200))  # rows, out, in


@pytest.fixture(params=quick_or_long(VARIANTS))
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


def product(library: Library, x: Tensor, weight: NativeWeight, bias: Tensor | None = None) -> Tensor:
    """The kernel's output, within a frame that nobody may write to."""
    framed = torch.full((x.shape[0], weight.out_features + 3), 7.0)
    num_rows = c_int32(x.shape[0])
    arguments = linear_arguments(addressof(num_rows), x, None, weight, bias, framed)
    library.call(f"penstock_linear_{weight.kind}", arguments)
    assert (framed[:, weight.out_features :] == 7).all(), "columns beyond the output were written"
    return framed[:, : weight.out_features].contiguous()


def random_case(shape: tuple[int, int, int], kind: str, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    num_rows, out_features, in_features = shape
    x = torch.randn(num_rows, in_features, generator=generator)
    weight = torch.randn(out_features, in_features, generator=generator).to(DTYPES[kind])
    return x, weight, torch.randn(out_features, generator=generator)


def is_rounding(library: Library, kind: str) -> bool:
    return kind == "bf16" and library.variant in ("amx", "avx512_bf16")


def assert_close(library: Library, kind: str, got: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Against the product in float64, to 1e-5 of what the terms add up to in size."""
    x = x.bfloat16().double() if is_rounding(library, kind) else x.double()
    expected, size = x @ weight.double().T, x.abs() @ weight.double().abs().T
    if bias is not None:
        expected, size = expected + bias.double(), size + bias.double().abs()
    worst = ((got.double() - expected).abs() / size).max()
    assert worst <= 1e-5, f"{library.variant} {kind} {tuple(got.shape)} × {x.shape[1]}: off by {worst:.2e}"


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_right_for_every_shape(library: Library, kind: str) -> None:
    @quick
    @given(shapes, st.booleans())
    def check(shape: tuple[int, int, int], has_bias: bool) -> None:
        x, weight, bias = random_case(shape, kind)
        given_bias = bias if has_bias else None
        got = product(library, x, pack([weight], kind), given_bias)
        assert_close(library, kind, got, x, weight, given_bias)

    check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 151_936 // 16, 128), (130, 96, 1024), (25, 64, 3072)])
def test_products_of_a_models_shapes_are_right(library: Library, kind: str, shape: tuple[int, int, int]) -> None:
    x, weight, _ = random_case(shape, kind)
    assert_close(library, kind, product(library, x, pack([weight], kind)), x, weight, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_alone_and_in_company(library: Library, kind: str, threads: int) -> None:
    x, weight, bias = random_case((53, 200, 321), kind)
    packed = pack([weight], kind)
    library.set_threads(1)
    alone = torch.cat([product(library, row[None], packed, bias) for row in x])
    library.set_threads(threads)
    try:
        for num_rows in (1, 2, 3, 4, 5, 7, 12, 13, 24, 26, 37, 53):
            together = product(library, x[:num_rows], packed, bias)
            assert torch.equal(together, alone[:num_rows]), f"{num_rows} rows, {threads} threads"
    finally:
        library.set_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_row_holds_stays_there(library: Library, kind: str) -> None:
    x, weight, _ = random_case((9, 40, 33), kind)
    packed = pack([weight], kind)
    expected = product(library, x, packed)
    x[4] = float("nan")
    got = product(library, x, packed)
    assert got[4].isnan().all()
    assert torch.equal(got[:4], expected[:4]) and torch.equal(got[5:], expected[5:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_packed_in_parts_is_the_weight_packed_whole(kind: str) -> None:
    _, weight, _ = random_case((1, 101, 77), kind)
    parts = [weight[:3], weight[3:70], weight[70:]]
    assert torch.equal(pack(parts, kind).data, pack([weight], kind).data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("features", [1, 63, 130])
def test_a_packed_weight_holds_the_nearest_numbers(
    library: Library, kind: str, source: torch.dtype, features: int
) -> None:
    weight = torch.randn(70, features, generator=torch.Generator().manual_seed(1)).to(source)
    packed = pack([weight.t().contiguous().t(), weight[:, :features]], kind)
    token_ids, rows = torch.arange(140), torch.full((140, features), torch.nan)
    num_rows, pointer = c_int32(140), torch.tensor([token_ids.data_ptr()])
    arguments = Embedding.of(addressof(num_rows), pointer.data_ptr(), 0, packed, rows.data_ptr())
    library.call("penstock_embedding", arguments)
    expected = weight.to(DTYPES[kind]).float()
    assert torch.equal(rows, torch.cat([expected, expected]))


def test_no_rows_are_no_work(library: Library) -> None:
    x, weight, _ = random_case((1, 8, 8), "fp32")
    assert product(library, x[:0], pack([weight], "fp32")).shape == (0, 8)
