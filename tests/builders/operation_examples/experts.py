"""Examples for kernels/reference/experts.py and gpu_experts.py, made from a seed."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.arrays import FLOAT32
from penstock.kernels.experts import ExpertWeights, GatedActivation, Routes, Routing
from penstock.kernels.operands import DTYPES, WeightFormat
from penstock.kernels.torch.arrays import torch_dtype
from penstock.kernels.torch.packed.gpu_experts import pack_experts

_CPU = torch.device("cpu")

# Rules of choice, as families have them and beyond: (number of tokens, the rule, whether there is a bias).
_RULES = (
    (1, Routing(8, 2), False),
    (7, Routing(60, 4, renormalizes=False), False),
    (5, Routing(64, 6, least_sum=1e-12), True),
    (3, Routing(32, 4, score="softmax_of_chosen", renormalizes=False), False),
    (4, Routing(24, 5, score="sigmoid", num_groups=8, kept_groups=4, group_score="best_two", scale=2.5), True),
    (4, Routing(24, 6, num_groups=4, kept_groups=2, renormalizes=False, scale=16.0), False),
    (2, Routing(130, 1), False),
    (2, Routing(3, 3, score="sigmoid", renormalizes=False), True),
)
_ACTIVATIONS = (
    GatedActivation(),
    GatedActivation(slope=1.702, shift=1.0, limit=0.7),
    GatedActivation(slope=1.5957691216, cubic=0.044715),
)


def route_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor | None, Routing, Tensor | None, Tensor | None, int]]:
    generator = torch.Generator().manual_seed(seed)
    for tokens, routing, has_bias in _RULES:
        logits = torch.randn(tokens, routing.num_experts, generator=generator) * 2
        bias = torch.randn(routing.num_experts, generator=generator) if has_bias else None
        factors = torch.randn(routing.num_experts, generator=generator) if has_bias else None
        yield logits, bias, routing, factors, None, 0
        yield logits.round(), None, routing, None, None, 0  # many of which are equal
        kinds = torch.randint(0, 2, (tokens,), dtype=torch.int32, generator=generator)
        yield logits, bias, routing, factors, kinds, tokens % 2
    yield torch.randn(3, 16, generator=generator).bfloat16(), None, Routing(16, 4), None, None, 0


def activation_inputs(seed: int) -> Iterator[tuple[Tensor, GatedActivation]]:
    generator = torch.Generator().manual_seed(seed)
    for activation in _ACTIVATIONS:
        for shape in ((1, 34), (33, 352)):
            yield torch.randn(shape, generator=generator) * 4, activation


def routes(tokens: int, top_k: int, num_experts: int, generator: torch.Generator) -> Routes:
    """Each token has other experts."""
    chosen = torch.rand(tokens, num_experts, generator=generator).argsort(1)[:, :top_k]
    return Routes(chosen.to(torch.int32), torch.rand(tokens, top_k, generator=generator))


def expert_inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    """With all experts here, and with those in the middle."""
    generator = torch.Generator().manual_seed(seed)
    for tokens, top_k, total, first, here, hidden, width in (
        (1, 2, 8, 0, 8, 32, 24),
        (9, 3, 6, 2, 3, 48, 40),
        (40, 2, 3, 0, 3, 32, 16),
    ):
        gate_up = torch.randn(here, 2 * width, hidden, generator=generator) / 8
        down = torch.randn(here, hidden, width, generator=generator) / 8
        biases: tuple[Tensor | None, Tensor | None] = (None, None)
        if first:
            biases = torch.randn(here, 2 * width, generator=generator), torch.randn(here, hidden, generator=generator)
        x, chosen = torch.randn(tokens, hidden, generator=generator), routes(tokens, top_k, total, generator)
        yield x, gate_up, down, *biases, chosen, first, _ACTIVATIONS[1 if first else 2 * (tokens > 9)]


def gated_sum_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 40), (5, 1100)):
        total, update = torch.randn(2, rows, width, generator=generator)
        yield total, update, torch.randn(rows, 1, generator=generator) * 3


def block_inputs(seed: int) -> Iterator[tuple[Tensor, int, int, int]]:
    """Few pairs and many, of all experts and of some of them, of which some get nothing."""
    generator = torch.Generator().manual_seed(seed)
    for tokens, top_k, total, first, here, size in (
        (1, 2, 8, 0, 8, 16),
        (5, 4, 40, 10, 20, 16),
        (700, 3, 5, 0, 5, 16),
        (300, 2, 9, 8, 1, 64),
        (3, 1, 6, 4, 2, 16),
    ):
        yield routes(tokens, top_k, total, generator).experts, first, here, size


# Formats of the gate's and up's weights, and of the down's.
_FORMS = (
    (WeightFormat("fp32"), WeightFormat("fp32")),
    (WeightFormat("bf16"), WeightFormat("bf16")),
    (WeightFormat("fp16"), WeightFormat("int8")),
    (WeightFormat("int8"), WeightFormat("int4", 32)),
    (WeightFormat("int4", 64), WeightFormat("int4", 64)),
    (WeightFormat("int4", 128), WeightFormat("int4", 1000)),
    (WeightFormat("int8", quantizes_rows=True), WeightFormat("int8", quantizes_rows=True)),
)


def gpu_expert_inputs(seed: int) -> Iterator[tuple[Tensor, Routes, ExpertWeights]]:
    """In every format: many tokens and few, experts that are here and elsewhere, those that nobody chose."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((1, 2, 6, 0, 6, 72, 40), (9, 3, 5, 2, 3, 200, 48), (70, 2, 3, 0, 3, 64, 100))
    for number, forms in enumerate(_FORMS):
        tokens, top_k, total, first, here, hidden, width = shapes[(number + seed) % len(shapes)]
        dtype = torch_dtype(DTYPES.get(forms[0].kind, FLOAT32))
        gate_up, down = (
            pack_experts([[_small(generator, *shape)] for _ in range(here)], here, form, _CPU)
            for form, shape in zip(forms, ((2 * width, hidden), (hidden, width)), strict=True)
        )
        biases = [_small(generator, here, outputs).to(dtype) if first else None for outputs in (2 * width, hidden)]
        weights = ExpertWeights(gate_up, down, *biases, first, here, width, _ACTIVATIONS[number % 3])
        yield (
            torch.randn(tokens, hidden, generator=generator).to(dtype),
            routes(tokens, top_k, total, generator),
            weights,
        )


def _small(generator: torch.Generator, *shape: int) -> Tensor:
    """So that results are less than 1, where 16 bits are exact to 1/256 at least."""
    return torch.randn(shape, generator=generator) / 24
