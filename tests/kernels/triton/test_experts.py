"""Mixtures of experts on GPUs: a token's bits in company, experts elsewhere, and how weights are kept."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
import torch
from builders.cases import for_each
from builders.gpu_products import random_part
from builders.operation_examples.experts import routes
from builders.quantized_parts import draws, floats, part
from torch import Tensor

from penstock.kernels.experts import ExpertWeights, GatedActivation, Routes, Routing
from penstock.kernels.operands import WeightFormat
from penstock.kernels.reference import experts, gpu_experts
from penstock.kernels.reference.quantized import quantize_int8
from penstock.kernels.stored.block_kinds import KINDS
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.kernels.stored.parts import WeightPart
from penstock.kernels.torch.packed.gpu_blocks import GpuBlocks, unpacked_blocks
from penstock.kernels.torch.packed.gpu_experts import GpuExperts, pack_experts
from penstock.kernels.torch.packed.gpu_weights import unpacked
from penstock.kernels.triton.experts import grouped
from penstock.kernels.triton.experts.choice import TUNINGS
from penstock.kernels.triton.launch.switches import Switch

CPU = torch.device("cpu")
HIDDEN, WIDTH, NUM_EXPERTS, TOP_K = 72, 40, 6, 3
FORMS = {
    "fp32": WeightFormat("fp32"),
    "bf16": WeightFormat("bf16"),
    "int8": WeightFormat("int8"),
    "int8, rows": WeightFormat("int8", quantizes_rows=True),
    "int4": WeightFormat("int4", 64),
}
route = experts.route.versions["triton"]
compute = gpu_experts.experts_gpu.versions["triton"]
compute_invariant = gpu_experts.experts_gpu_invariant.versions["triton"]


def weights_of(form: WeightFormat) -> ExpertWeights:
    gate_up, down = (
        pack_experts(([draws(*shape, seed=seed) / 8] for seed in range(NUM_EXPERTS)), NUM_EXPERTS, form, CPU)
        for shape in ((2 * WIDTH, HIDDEN), (HIDDEN, WIDTH))
    )
    return ExpertWeights(gate_up, down, None, None, 0, NUM_EXPERTS, WIDTH, GatedActivation())


def tokens(count: int, form: WeightFormat) -> tuple[Tensor, Routes]:
    dtype = torch.bfloat16 if form.kind == "bf16" else torch.float32
    return draws(count, HIDDEN).to(dtype), routes(count, TOP_K, NUM_EXPERTS, torch.Generator().manual_seed(1))


def some(chosen: Routes, which: slice) -> Routes:
    return Routes(chosen.experts[which], chosen.weights[which])


@pytest.mark.parametrize(
    "name", [name if name in ("bf16", "int4") else pytest.param(name, marks=pytest.mark.long) for name in FORMS]
)
def test_a_token_has_the_same_bits_in_any_company(name):
    weights, (x, chosen) = weights_of(FORMS[name]), tokens(20, FORMS[name])
    together = compute_invariant(x, chosen, weights)
    for which in (slice(0, 1), slice(9, 20)):
        assert torch.equal(compute_invariant(x[which], some(chosen, which), weights), together[which]), which


def test_no_tokens_give_no_rows():
    weights, (x, chosen) = weights_of(FORMS["bf16"]), tokens(3, FORMS["bf16"])
    assert compute(x[:0], some(chosen, slice(0)), weights).shape == (0, HIDDEN)
    assert route(torch.empty(0, 8), None, Routing(8, 2)).experts.shape == (0, 2)


@pytest.fixture
def unwritten_memory_holds_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_what_experts_elsewhere_leave_unwritten_is_not_read(unwritten_memory_holds_nan):
    assert torch.empty(3).isnan().all()
    weights, (x, chosen) = weights_of(FORMS["fp32"]), tokens(5, FORMS["fp32"])
    weights = replace(weights, first=4)  # of the six here, four are beyond all that tokens choose
    expected = gpu_experts.experts_gpu.reference(x, chosen, weights)
    torch.testing.assert_close(compute(x, chosen, weights), expected, rtol=1e-4, atol=1e-4)


def test_a_token_that_is_not_finite_gives_no_numbers_and_leaves_the_others_alone():
    weights, (x, _), logits = weights_of(FORMS["fp32"]), tokens(4, FORMS["fp32"]), draws(4, NUM_EXPERTS, seed=2)
    clean = compute(x, route(logits, None, Routing(NUM_EXPERTS, TOP_K)), weights)
    x[1], logits[1] = torch.nan, torch.nan
    chosen = route(logits, None, Routing(NUM_EXPERTS, TOP_K))
    assert chosen.experts[1].tolist() == [0, 1, 2] and chosen.weights[1].isnan().all()
    found = compute(x, chosen, weights)
    assert found[1].isnan().all() and torch.equal(found[[0, 2, 3]], clean[[0, 2, 3]])


@pytest.mark.long
@for_each("name", FORMS)
def test_every_choice_that_is_tried_computes_the_same(name, monkeypatch):
    weights, tuning = weights_of(FORMS[name]), TUNINGS[FORMS[name].kind]
    for choice in tuning.choices:
        monkeypatch.setattr(tuning, "default", lambda *_, choice=choice: choice)
        for count in (3, 70):
            x, chosen = tokens(count, FORMS[name])
            expected = gpu_experts.experts_gpu.reference(x, chosen, weights).float()
            bound = 1e-2 * float(expected.abs().max())
            torch.testing.assert_close(compute(x, chosen, weights).float(), expected, rtol=0, atol=bound)


QUICK_TYPES = (("Q4_K", "Q6_K"), ("Q8_0", "Q5_1"), ("MXFP4", "IQ4_NL"))
OTHER_TYPES = [(type, type) for type in KINDS if type not in ("Q4_K", "Q8_0", "MXFP4")]


def weights_in_blocks(types: tuple[str, str], first: int = 0) -> ExpertWeights:
    """Three experts from the first on; gate and up in one type, down in the other."""
    inner = width = max(TYPES[type].block for type in types)
    shapes = ((2 * width, inner), (inner, width))
    gate_up, down = (
        pack_experts(([random_part(type, *shape, seed=seed)] for seed in range(3)), 3, WeightFormat("fp32"), CPU)
        for type, shape in zip(types, shapes, strict=True)
    )
    return ExpertWeights(gate_up, down, None, None, first, 3, width, GatedActivation())


@pytest.mark.parametrize(
    "cases",
    [
        [*zip(QUICK_TYPES, (2, 70, 2), strict=True)],
        pytest.param([*product((*QUICK_TYPES, *OTHER_TYPES), (2, 70))], marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_experts_in_blocks_give_what_their_numbers_do(cases):
    for types, count in cases:
        weights = weights_in_blocks(types, first=1)
        x, chosen = draws(count, weights.down.out_features) / 64, routes(count, 2, 5, torch.Generator().manual_seed(1))
        expected = gpu_experts.experts_gpu.reference(x, chosen, weights)
        together = compute_invariant(x, chosen, weights)
        for found in (compute(x, chosen, weights), together):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
        assert torch.equal(compute_invariant(x[1:2], some(chosen, slice(1, 2)), weights), together[1:2]), types


def packed(parts: list[list[WeightPart]], form: WeightFormat = FORMS["bf16"]) -> GpuExperts:
    return pack_experts(parts, len(parts), form, CPU)


def test_what_a_checkpoint_holds_of_each_expert_is_taken_over_as_it_is():
    """Also where some have zeros, and others none."""
    parts = [[part(has_zeros=number == 1, seed=number), part(seed=number + 9)] for number in range(3)]
    found = packed(parts)
    assert found.weight.kind == "int4"
    for number, of_expert in enumerate(parts):
        assert torch.equal(unpacked(found.of(number)).dequantized(), floats(*of_expert))
    parts = [[random_part("Q5_K", 40, 512, seed=2 * number + half) for half in range(2)] for number in range(3)]
    found = packed(parts)
    assert isinstance(found.weight, GpuBlocks) and found.kinds == ("q5_k",)
    for number, of_expert in enumerate(parts):
        assert torch.equal(unpacked_blocks(found.of(number)), floats(*of_expert))


def test_inputs_in_an_order_of_their_own_become_int8_and_gates_in_unlike_blocks_floats():
    parts = [[part(order=torch.randperm(128).int(), seed=number)] for number in range(2)]
    found = packed(parts)
    assert found.weight.kind == "int8" and found.weight.order is None
    for number, of_expert in enumerate(parts):
        assert torch.equal(found.of(number).values, quantize_int8(floats(*of_expert)).values)
    assert packed([[random_part("Q4_K", 40, 256), random_part("Q6_K", 40, 256)]] * 2).kinds == ("bf16",)


def test_experts_in_unlike_formats_are_refused():
    with pytest.raises(ValueError, match="Expert 1 is stored as q6_k in groups of 16, .* those before it as q4_k in"):
        packed([[random_part("Q4_K", 40, 256)], [random_part("Q6_K", 40, 256)]])
    with pytest.raises(ValueError, match="Expert 1 is stored as int4 in groups of 64 .* those before it as int4 in"):
        packed([[part()], [part(group_size=64)]])
    with pytest.raises(ValueError, match="Expert 1 is stored as bf16, 128 inputs, those before it as int4"):
        packed([[part()], [draws(40, 128)]])


@for_each("first, total, tokens", [(0, 6, 20), (2, 12, 33), (3, 40, 25)])
@for_each("activation", [GatedActivation(), GatedActivation(slope=1.702, shift=1.0, limit=0.5)])
def test_torch_s_grouped_products_give_what_the_formula_does_and_ask_the_host_nothing(
    monkeypatch, first, total, tokens, activation
):
    """Experts here and elsewhere, some that nobody chose, and the steps that they don't serve."""
    monkeypatch.setattr(grouped, "GROUPED_PRODUCTS", Switch("PENSTOCK_UNHEARD_OF", True, ""))
    monkeypatch.setattr(grouped, "_LEAST_PAIRS_OF_AN_EXPERT", 8)
    generator = torch.Generator().manual_seed(0)
    gate_up, down = (
        pack_experts([[torch.randn(*shape, generator=generator) / 12] for _ in range(6)], 6, FORMS["bf16"], CPU)
        for shape in ((2 * WIDTH, HIDDEN), (HIDDEN, WIDTH))
    )
    weights = ExpertWeights(gate_up, down, None, None, first, 6, WIDTH, activation)
    x, chosen = torch.randn(tokens, HIDDEN, generator=generator).bfloat16(), routes(tokens, TOP_K, total, generator)
    chosen = chosen._replace(experts=torch.where(chosen.experts == 4, 3, chosen.experts))
    assert grouped.serves(x, chosen, weights)
    found, expected = compute(x, chosen, weights), gpu_experts.experts_gpu.reference(x, chosen, weights)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    assert not grouped.serves(x[:9], Routes(*(each[:9] for each in chosen)), weights)
    assert not grouped.serves(x.half(), chosen, weights)
    assert not grouped.serves(x, chosen, replace(weights, down_bias=torch.zeros(6, HIDDEN)))
