"""Products with MXFP4 on a processor: taken over as published, and the formula's own bits in every variant."""

import inspect
from ctypes import addressof, c_int32
from itertools import product as product_of

import pytest
import torch
from builders.mxfp4_model import random_blocks
from builders.native_variants import available_variants, quick_or_long
from builders.recorded_layers import OneCall
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.layer import Quantize, QuantizedRows, linear_arguments
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.cpu.weights.experts import pack_experts
from penstock.kernels.cpu.weights.packed import NativeWeight, pack_mxfp4
from penstock.kernels.cpu.weights.quantized import pack_parts, unpacked_mxfp4
from penstock.kernels.experts import ExpertWeights, GatedActivation, Routes
from penstock.kernels.mxfp4_part import BLOCK, DOUBLED, Mxfp4Part
from penstock.kernels.reference.experts import activate
from penstock.kernels.reference.quantized import quantize_rows

_PARAMETERS = list(inspect.signature(NativeOperations.experts).parameters.values())[1:]
VARIANTS = available_variants()
pytestmark = pytest.mark.skipif(not VARIANTS, reason="this processor executes none of the native variants")
quick = settings(max_examples=15, deadline=None, derandomize=True)


@pytest.fixture(params=quick_or_long(VARIANTS))
def library(request: pytest.FixtureRequest) -> Library:
    return load(request.param)


def part_of(outputs: int, blocks: int, seed: int = 0) -> Mxfp4Part:
    return Mxfp4Part(*random_blocks((outputs, blocks), seed))


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product(library: Library, x: Tensor, weight: NativeWeight, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The kernel's output, and the expected one."""
    rows, num_rows = QuantizedRows.empty(*x.shape), c_int32(len(x))
    count = addressof(num_rows)
    library.call("penstock_quantize", Quantize(count, x.data_ptr(), x.shape[1], rows.structure()))
    found = torch.full((len(x), weight.out_features), torch.nan)
    arguments = linear_arguments(count, None, rows.structure(), weight, bias, found)
    library.call("penstock_linear_mxfp4", arguments)
    return found, formula(rows, unpacked_mxfp4(weight), bias)


def formula(rows: QuantizedRows, part: Mxfp4Part, bias: Tensor | None) -> Tensor:
    """Block by block, each step rounded as a fused float32 product is."""
    codes = torch.stack((part.codes & 15, part.codes >> 4), -1).flatten(2)
    doubled = torch.tensor(DOUBLED)[codes.long()].double()  # [out, blocks, 32]
    powers = 2.0 ** (part.exponents.double() - 128)
    total = torch.zeros(len(rows.values), len(codes), dtype=torch.float32)
    for block in range(codes.shape[1]):
        sums = rows.values[:, block * BLOCK : (block + 1) * BLOCK].double() @ doubled[:, block].T  # exact
        total = (sums * powers[:, block] + total.double()).float()
    scaled = total.double() * rows.scales[:, None].double()
    return (scaled if bias is None else scaled + bias.double()).float()


def test_products_have_the_bits_of_the_formula(library: Library) -> None:
    @quick
    @given(st.integers(1, 40), st.integers(1, 150), st.integers(1, 9), st.booleans())
    def check(rows: int, outputs: int, blocks: int, has_bias: bool) -> None:
        bias = draws(outputs) if has_bias else None
        found, expected = product(
            library, draws(rows, blocks * BLOCK, seed=rows), pack_mxfp4([part_of(outputs, blocks)]), bias
        )
        assert torch.equal(found, expected)

    check()


def test_a_row_has_the_same_bits_in_any_company(library: Library) -> None:
    x, weight = draws(71, 5 * BLOCK), pack_mxfp4([part_of(70, 5)])
    together, _ = product(library, x, weight)
    for count in (1, 2, 5, 13, 24, 33, 70):
        assert torch.equal(product(library, x[:count], weight)[0], together[:count]), f"{count} rows"


@pytest.mark.parametrize("exponent", [0, 1, 2, 126, 127, 230])
def test_every_exponent_counts(library: Library, exponent: int) -> None:
    part = part_of(40, 3)
    part.exponents[:, 1] = exponent
    found, expected = product(library, draws(3, 3 * BLOCK), pack_mxfp4([part]))
    assert torch.equal(found, expected) and found.isfinite().all()


def test_a_block_that_is_no_number_spoils_its_output_alone(library: Library) -> None:
    part = part_of(40, 3)
    part.exponents[7, 1] = 255
    found, _ = product(library, draws(3, 3 * BLOCK), pack_mxfp4([part]))
    assert not found[:, 7].isfinite().any() and found[:, [6, 8]].isfinite().all()


def test_parts_are_taken_over_as_they_are_from_any_view() -> None:
    whole = part_of(90, 7)
    parts = [whole.every_second(0), whole.every_second(1)]
    weight = pack_parts(parts, "mxfp4", BLOCK)
    assert weight.kind == "mxfp4"
    found = unpacked_mxfp4(weight)
    assert torch.equal(found.codes, torch.cat([part.codes for part in parts]))
    assert torch.equal(found.exponents, torch.cat([part.exponents for part in parts]))
    cut = Mxfp4Part(whole.codes[:, 2:5], whole.exponents[:, 2:5])
    assert torch.equal(unpacked_mxfp4(pack_mxfp4([cut])).dequantized(), whole.dequantized()[:, 64:160])


def test_a_number_takes_4_and_a_quarter_bits() -> None:
    assert pack_mxfp4([part_of(64, 4)]).nbytes == 64 * 128 * 17 // 32


def test_experts_compute_the_formula_on_rows_of_8_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    count, hidden, width, tokens, top_k = 6, 3 * BLOCK, 2 * BLOCK, 41, 3
    gate_up, down = ([part_of(*shape, seed) for seed in range(count)] for shape in ((2 * width, 3), (hidden, 2)))
    biases = [torch.randn(count, size, generator=generator) for size in (2 * width, hidden)]
    x = torch.randn(tokens, hidden, generator=generator)
    chosen = torch.stack([torch.randperm(count, generator=generator)[:top_k] for _ in range(tokens)])
    routes = Routes(chosen.int(), torch.rand(tokens, top_k, generator=generator))
    activation = GatedActivation(1.702, 1.0, 7.0)

    form = WeightFormat("mxfp4", BLOCK)
    packed = (pack_experts(([part] for part in parts), count, form) for parts in (gate_up, down))
    call = OneCall(tokens, tokens)
    arguments = (x, routes, ExpertWeights(*packed, *biases, 0, count, width, activation))
    found = call.given("experts", [call.placed(*pair) for pair in zip(_PARAMETERS, arguments, strict=True)])

    expected = torch.zeros_like(x)
    for token, rank in product_of(range(tokens), range(top_k)):
        expert = int(chosen[token, rank])
        inner = in_8_bits(x[token]) @ gate_up[expert].dequantized().T + biases[0][expert]
        inner = in_8_bits(activate.reference(inner, activation))
        expected[token] += routes.weights[token, rank] * (inner @ down[expert].dequantized().T + biases[1][expert])
    assert (found - expected).norm() < 1e-6 * expected.norm()


def in_8_bits(row: Tensor) -> Tensor:
    values, scales = quantize_rows(row[None])
    return values[0].float() * scales
