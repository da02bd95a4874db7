"""Native mixtures of experts: against the formulas for all kinds of weights and odd shapes, and the bits of a token
alone and in any company."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, product

import torch
from builders.cases import for_each
from builders.gpu_products import random_part
from builders.native_products import assert_free_of_company
from builders.native_variants import needs_variant
from builders.operation_examples.experts import route_inputs, routes
from builders.quantized_model import random_blocks
from builders.quantized_parts import draws, floats, pack_experts, part
from builders.recorded_layers import RECORDED, OneCall
from torch import Tensor

from penstock.kernels.cpu.calls import experts as calls
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.operations import NativeOperations
from penstock.kernels.cpu.weights.experts import of_one_kind, unpack_experts
from penstock.kernels.experts import ExpertWeights, GatedActivation, Routes, Routing
from penstock.kernels.operands import WeightFormat
from penstock.kernels.reference.experts import experts, route
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.kernels.stored.mxfp4 import BLOCK, Mxfp4Part
from penstock.kernels.stored.parts import WeightPart
from penstock.kernels.stored.quantized import QuantizedPart
from penstock.kernels.torch.arrays import array_of, tensor_of

pytestmark = needs_variant

# How far outputs may be off: what rounding rows to bfloat16 or 8 bits costs.
KINDS = {"fp32": 1e-5, "fp16": 1e-5, "bf16": 0.02, "int8": 0.03, "int4": 0.03}
IN_BLOCKS = 0.03
choose = RECORDED["experts.route"]
_PARAMETERS = list(inspect.signature(NativeOperations.experts).parameters.values())[1:]
SILU, CLAMPED = GatedActivation(), GatedActivation(slope=1.702, shift=1.0, limit=0.7)
GELU = GatedActivation(slope=1.5957691216, cubic=0.044715)


@dataclass
class Mixture:
    """The experts of one layer in native form, and as the formula takes them."""

    weights: ExpertWeights
    gate_up: Tensor  # [experts, 2 × width, hidden]
    down: Tensor

    @classmethod
    def drawn(
        cls, kinds: tuple[str, str], count: int, hidden: int, width: int, *, first: int = 0, has_bias: bool = False,
        activation: GatedActivation = SILU,
    ) -> "Mixture":  # fmt: skip
        gate_up, down = draws(count, 2 * width, hidden) / hidden**0.5, draws(count, hidden, width, seed=1) / width**0.5
        matrices = ([list(each.chunk(2)) for each in gate_up], [[each] for each in down])
        packed = [
            pack_experts([stored(kind, parts) for parts in each], count, WeightFormat(kind, 32))
            for kind, each in zip(kinds, matrices, strict=True)
        ]
        biases = (draws(count, 2 * width, seed=2), draws(count, hidden, seed=3)) if has_bias else (None, None)
        weights = of_one_kind(ExpertWeights(*packed, *biases, first, count, width, activation), hidden)
        pairs = ((weights.gate_up, 2 * width), (weights.down, hidden))
        return cls(weights, *(tensor_of(unpack_experts(each, count, rows)) for each, rows in pairs))

    def formula(self, x: Tensor, chosen: Routes) -> Tensor:
        own = self.weights
        return experts.reference(
            x, self.gate_up, self.down, own.gate_up_bias, own.down_bias, chosen, own.first, own.activation
        )

    def native(self, x: Tensor, chosen: Routes) -> Tensor:
        call = OneCall(len(x), len(x))
        arguments = zip(_PARAMETERS, (x, chosen, self.weights), strict=True)
        found = call.given("experts", [call.placed(*pair) for pair in arguments])
        assert isinstance(found, Tensor)
        return found


def stored(kind: str, parts: list[Tensor]) -> list[WeightPart]:
    """The parts as a checkpoint holds them; random ones, where its format can't be rounded to."""
    if kind in TYPES:
        return [random_part(kind, *part.shape, seed=seed) for seed, part in enumerate(parts)]
    if kind != "mxfp4":
        return list(parts)
    blocks = [random_blocks((len(part), part.shape[1] // BLOCK), seed) for seed, part in enumerate(parts)]
    return [Mxfp4Part(*map(array_of, each)) for each in blocks]


def off_by(found: Tensor, expected: Tensor) -> float:
    """The root mean square of the differences over that of what is expected."""
    return float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt().clamp_min(1e-6))


# tokens, top_k, experts of all ranks, first, here, hidden, width
SHAPES = (
    (1, 2, 8, 0, 8, 64, 96),
    (23, 3, 6, 2, 3, 100, 40),  # neither whole panels nor whole steps of inputs; only some experts are here
    (40, 1, 1, 0, 1, 130, 70),  # one expert
    (9, 5, 5, 0, 5, 33, 31),  # all experts are chosen by all
    (64, 2, 40, 0, 40, 192, 1),
    (3, 2, 9, 7, 2, 2112, 64),  # most tokens have no expert here
)


# A file's blocks stay as they are; those of both products may be unlike.
PAIRS = [
    ("Q4_K", "Q6_K"), ("Q4_K", "Q8_0"), ("Q8_0", "Q5_0"), ("IQ4_XS", "Q4_K"), ("mxfp4", "mxfp4"), ("Q5_K", "Q5_1"),
    ("Q4_0", "Q4_0"),
]  # fmt: skip
MANY, ONE = (23, 3, 6, 0, 6, 512, 256), (1, 3, 6, 0, 6, 512, 256)
CASES = [*product(zip(KINDS, KINDS), SHAPES), *zip(PAIRS, cycle((MANY, ONE)))]


@for_each("kinds, shape", CASES)
def test_experts_agree_with_their_formula(variant: str, kinds: tuple[str, str], shape: tuple[int, ...]) -> None:
    tokens, top_k, total, first, here, hidden, width = shape
    is_odd, activation = tokens % 2 == 1, (SILU, CLAMPED, GELU)[tokens % 3]
    mixture = Mixture.drawn(kinds, here, hidden, width, first=first, has_bias=is_odd, activation=activation)
    assert (mixture.weights.gate_up.kind, mixture.weights.down.kind) == tuple(kind.lower() for kind in kinds)
    x, chosen = draws(tokens, hidden, seed=4), routes(tokens, top_k, total, torch.Generator().manual_seed(5))
    load().set_threads(2)
    assert off_by(mixture.native(x, chosen), mixture.formula(x, chosen)) < KINDS.get(kinds[0], IN_BLOCKS)


@for_each("kind", [*KINDS, "mxfp4", "Q8_0", "Q4_1", "Q4_K", "Q6_K"])
def test_a_token_has_the_same_bits_alone_and_in_any_company_even_beside_nan(variant: str, kind: str) -> None:
    hidden, width = (512, 256) if kind in TYPES else (160, 96)
    mixture = Mixture.drawn((kind, kind), 6, hidden, width, has_bias=True)
    x, chosen = draws(70, hidden, seed=4), routes(70, 3, 6, torch.Generator().manual_seed(5))
    run = lambda own: mixture.native(x[own], cut(chosen, own))  # noqa: E731
    assert_free_of_company(load(), run, 70, (*range(2, 27, 3), 48, 70))
    whole = run(slice(70))
    x[17, 3] = torch.nan
    found, others = run(slice(70)), torch.arange(70) != 17
    assert found[17].isnan().all() and torch.equal(found[others], whole[others])


def cut(chosen: Routes, own: slice) -> Routes:
    return Routes(chosen.experts[own], chosen.weights[own])


@for_each("kind", ["bf16", "int8"])
def test_all_tokens_may_go_to_one_expert_or_to_none_here(variant: str, kind: str) -> None:
    mixture = Mixture.drawn((kind, kind), 4, 64, 64, first=8)
    x, weights = draws(50, 64), torch.rand(50, 1, generator=torch.Generator().manual_seed(1))
    to_one = Routes(torch.full((50, 1), 10, dtype=torch.int32), weights)
    assert off_by(mixture.native(x, to_one), mixture.formula(x, to_one)) < KINDS[kind]
    for elsewhere in (-1, 7, 12, 2**31 - 1):
        to_none = Routes(torch.full((50, 1), elsewhere, dtype=torch.int32), weights)
        assert not mixture.native(x, to_none).any()


@for_each("kind", ["fp32", "bf16", "int8", "int4", "mxfp4"])
def test_steps_larger_than_the_memory_between_products_have_the_same_bits(variant: str, kind: str, monkeypatch) -> None:
    """A step is computed some tokens at a time, and its second product some columns at a time."""
    mixture, tokens = Mixture.drawn((kind, kind), 3, 2048, 64), 150
    x, chosen = draws(tokens, 2048, seed=4), routes(tokens, 3, 3, torch.Generator().manual_seed(5))
    load().set_threads(2)
    at_once = mixture.native(x, chosen)
    assert torch.equal(at_once[140:141], mixture.native(x[140:141], cut(chosen, slice(140, 141))))
    load().set_threads(3)
    monkeypatch.setattr(calls, "_LEAST_BYTES", 0)
    for most in (1, 7):
        monkeypatch.setattr(calls, "_MOST_TOKENS", most)
        assert torch.equal(at_once, mixture.native(x, chosen)), most


def test_a_tokens_experts_do_not_depend_on_its_company_or_the_threads(variant: str) -> None:
    for logits, bias, routing, factors, *_ in route_inputs(0):
        for threads in (1, 3):
            load().set_threads(threads)
            together = choose(logits, bias, routing, factors, None, 0)
            for row in range(len(logits)):
                alone = choose(logits[row : row + 1], bias, routing, factors, None, 0)
                assert all(torch.equal(one[0], all_rows[row]) for one, all_rows in zip(alone, together, strict=True))


@for_each("score", ["softmax", "sigmoid", "softmax_of_chosen"])
@for_each("spoiled", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_no_numbers_choose_experts_that_exist(variant: str, score: str, spoiled: float) -> None:
    routing = Routing(12, 4, score=score, num_groups=4, kept_groups=2, group_score="best_two")
    logits = draws(3, 12)
    logits[1, 5], logits[2] = spoiled, spoiled
    expected, found = (each(logits, None, routing, None, None, 0) for each in (route.reference, choose))
    assert ((found.experts >= 0) & (found.experts < 12)).all()
    assert all(row.unique().numel() == 4 for row in found.experts)
    assert torch.equal(found.weights.isnan().any(1), expected.weights.isnan().any(1))


FORMS: dict[str, Callable[[int], QuantizedPart | Tensor]] = {
    "4 bits": lambda seed: part(40, 128, seed=seed),
    "4 bits, zeros in one": lambda seed: part(40, 128, has_zeros=seed == 1, seed=seed),
    "4 bits in unlike groups": lambda seed: part(40, 128, group_size=64 if seed else 32, seed=seed),
    "8 bits": lambda seed: part(40, 128, 128, bits=8, seed=seed),
    "8 bits in groups": lambda seed: part(40, 128, 32, bits=8, seed=seed),
    "in an order": lambda seed: part(40, 128, order=torch.randperm(128).int(), seed=seed),
    "floats behind 8 bits": lambda seed: draws(40, 128) if seed else part(40, 128, 128, bits=8),
    "8 bits behind floats": lambda seed: part(40, 128, 128, bits=8) if seed else draws(40, 128),
}


@for_each("name", FORMS)
def test_experts_of_quantized_checkpoints_are_packed_into_one_form(name: str) -> None:
    given = [FORMS[name](seed) for seed in range(3)]
    packed = pack_experts([[each] for each in given], 3, WeightFormat("bf16"))
    held = tensor_of(unpack_experts(packed, 3, 40))
    exact = torch.stack([floats(each) for each in given])
    rounds = packed.kind == "int8" and name != "8 bits"
    assert off_by(held, exact) < (0.02 if rounds else 1e-6)
    assert rounds == (name not in ("4 bits", "4 bits, zeros in one", "8 bits"))
