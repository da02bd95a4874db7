"""Weights of ggml's blocks as layers use them: side by side with others, behind a gate, as experts of two kinds."""

import inspect
from itertools import product as product_of

import pytest
import torch
from builders.ggml_parts import random_part
from builders.native_variants import available_variants
from builders.recorded_layers import OneCall
from torch import Tensor

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.cpu.weights.blocks import JoinedWeight, unpacked_blocks
from penstock.kernels.cpu.weights.experts import of_one_kind, pack_experts
from penstock.kernels.cpu.weights.packed import BLOCK_KINDS, NativeWeight
from penstock.kernels.cpu.weights.quantized import pack_parts, unpacked_mxfp4
from penstock.kernels.experts import ExpertWeights, GatedActivation, Routes
from penstock.kernels.float8_part import WeightPart
from penstock.kernels.operands import Kind
from penstock.kernels.reference.experts import activate
from penstock.kernels.reference.quantized import quantize_rows

pytestmark = pytest.mark.skipif(not available_variants(), reason="this processor executes none of the native variants")
_EXPERTS = list(inspect.signature(NativeOperations.experts).parameters.values())[1:]


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def linear(x: Tensor, weight: NativeWeight, bias: Tensor | None = None) -> Tensor:
    call = OneCall(len(x), len(x))
    found = call.given("linear", [call.buffer("x", x), weight, bias])
    assert isinstance(found, Tensor)
    return found


def in_8_bits(x: Tensor, group: int) -> Tensor:
    values, scales = quantize_rows(x.view(-1, group))
    return (values.float() * scales[:, None]).view(x.shape)


@pytest.mark.parametrize("type", ["Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q8_0", "IQ4_NL", "Q2_K", "IQ3_XXS", "TQ2_0"])
def test_a_recorded_product_quantizes_rows_as_its_weight_wants_them(type: str) -> None:
    part, x = random_part(type, 70, 512), draws(9, 512)
    weight = pack_parts([part], "fp32", 0)
    assert weight.kind in BLOCK_KINDS and torch.equal(unpacked_blocks(weight), part.dequantized())
    expected = in_8_bits(x, part.block.block) @ part.dequantized().T
    torch.testing.assert_close(linear(x, weight), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", BLOCK_KINDS)
def test_a_cut_through_blocks_is_packed_as_the_numbers_that_it_is(kind: Kind) -> None:
    cut, x = draws(48, 128), draws(5, 128)
    weight = pack_parts([cut], kind, 0)
    assert weight.kind == "fp32"
    torch.testing.assert_close(linear(x, weight), x @ cut.T, rtol=1e-4, atol=1e-4)


def test_parts_of_unlike_types_are_one_product() -> None:
    types = ("Q4_K", "Q4_K", "Q6_K", "Q8_0", "MXFP4", "Q5_0")
    parts: list[WeightPart] = [random_part(type, 33 + 7 * number, 512) for number, type in enumerate(types)]
    parts.append(draws(20, 512) / 8)
    x, bias = draws(13, 512), draws(sum(part.shape[0] for part in parts))
    weight = pack_parts(parts, "fp32", 0)
    assert isinstance(weight, JoinedWeight)
    assert [part.kind for part in weight.parts()] == ["q4_k", "q6_k", "q8_0", "mxfp4", "q5_0", "fp32"]
    found, first = linear(x, weight, bias), 0
    for part in parts:
        own = slice(first, first + part.shape[0])
        alone = linear(x, pack_parts([part], "fp32", 0), bias[own])
        assert torch.equal(found[:, own], alone), first
        first = own.stop


def test_floats_beside_blocks_stay_what_the_file_has() -> None:
    floats = draws(40, 256).half()
    weight = pack_parts([random_part("Q4_K", 40, 256), floats], "q4_k", 0)
    assert isinstance(weight, JoinedWeight)
    assert [part.kind for part in weight.parts()] == ["q4_k", "fp16"]
    assert pack_parts([random_part("NVFP4", 40, 256)], "bf16", 0).kind == "bf16"


def test_mxfp4_of_a_gguf_file_is_packed_in_the_published_order() -> None:
    part = random_part("MXFP4", 50, 320)
    weight = pack_parts([part], "fp32", 0)
    assert weight.kind == "mxfp4"
    assert torch.equal(unpacked_mxfp4(weight).dequantized(), part.dequantized())


@pytest.mark.parametrize("types", [("Q4_K", "Q4_K"), ("Q4_K", "Q6_K"), ("Q8_0", "Q5_1"), ("MXFP4", "MXFP4")])
def test_a_gate_behind_a_product_takes_it_in_one_call(types: tuple[str, str]) -> None:
    x, width = draws(7, 256), 48
    weight = pack_parts([random_part(type, width, 256, seed) for seed, type in enumerate(types)], "fp32", 0)
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
    torch.testing.assert_close(gated.rows(len(x)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kinds",
    [("Q4_K", "Q6_K"), ("Q4_K", "Q8_0"), ("Q8_0", "Q5_0"), ("IQ4_XS", "Q4_K"), ("Q5_K", "Q5_1"), ("Q4_0", "Q4_0")],
)
@pytest.mark.parametrize("tokens", [1, 41])
def test_experts_of_two_kinds_compute_the_formula(kinds: tuple[str, str], tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    count, hidden, width, top_k = 6, 512, 256, 3
    shapes = (2 * width, hidden), (hidden, width)
    gate_up, down = (
        [random_part(kind, *shape, seed) for seed in range(count)] for kind, shape in zip(kinds, shapes, strict=True)
    )
    biases = [torch.randn(count, size, generator=generator) for size in (2 * width, hidden)]
    x = torch.randn(tokens, hidden, generator=generator)
    chosen = torch.stack([torch.randperm(count, generator=generator)[:top_k] for _ in range(tokens)])
    routes = Routes(chosen.int(), torch.rand(tokens, top_k, generator=generator))

    form = WeightFormat("fp32")
    packed = (pack_experts(([part] for part in parts), count, form) for parts in (gate_up, down))
    weights = of_one_kind(ExpertWeights(*packed, *biases, 0, count, width, GatedActivation()), hidden)
    assert (weights.gate_up.kind, weights.down.kind) == tuple(kind.lower() for kind in kinds)
    call = OneCall(tokens, tokens)
    arguments = (x, routes, weights)
    found = call.given("experts", [call.placed(*pair) for pair in zip(_EXPERTS, arguments, strict=True)])

    expected = torch.zeros_like(x)
    for token, rank in product_of(range(tokens), range(top_k)):
        expert = int(chosen[token, rank])
        first, second = gate_up[expert], down[expert]
        inner = in_8_bits(x[token], first.block.block) @ first.dequantized().T + biases[0][expert]
        inner = in_8_bits(activate.reference(inner[None], GatedActivation())[0], second.block.block)
        expected[token] += routes.weights[token, rank] * (inner @ second.dequantized().T + biases[1][expert])
    assert isinstance(found, Tensor)
    # A number between two integers may be rounded to the other one.
    assert (found - expected).norm() < 1e-3 * expected.norm()


def test_a_gate_and_what_it_lets_through_may_be_of_unlike_types() -> None:
    parts = [[random_part("Q4_K", 64, 256, seed), random_part("Q6_K", 64, 256, seed)] for seed in range(2)]
    weight = pack_experts(parts, 2, WeightFormat("fp32"))
    assert weight.kind == "fp16"
