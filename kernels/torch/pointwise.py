"""Row-invariant forms of what happens to a row between two products.

Sums run along a row in torch's fixed order. Two things of torch are not row-invariant, and these forms go round them:
activations round differently in the tail of a vector loop, and the sum of a lone long row is split over threads. All
else, log-softmax too, torch computes for each row by itself.
"""

import math
from collections.abc import Callable

from torch import Tensor

from ..operands import Activation
from ..reference.pointwise import (
    add_part_norms_invariant,
    apply_activation_invariant,
    gate_invariant,
    layer_norm,
    layer_norm_invariant,
    rms_norm,
    rms_norm_invariant,
)


@rms_norm_invariant.implement("torch")
def rms_norm_in_company(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """A lone row in the company of its double."""
    if x.shape[0] > 1:
        return rms_norm.reference(x, weight, epsilon)
    return rms_norm.reference(_doubled(x), weight, epsilon)[:1]


@add_part_norms_invariant.implement("torch")
def add_part_norms_in_company(total: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return total.add_(rms_norm_in_company(x.unflatten(1, (-1, len(weight))), weight, epsilon).flatten(1))


@layer_norm_invariant.implement("torch")
def layer_norm_in_company(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """The same."""
    if x.shape[0] > 1:
        return layer_norm.reference(x, weight, bias, epsilon)
    return layer_norm.reference(_doubled(x), weight, bias, epsilon)[:1]


def _doubled(x: Tensor) -> Tensor:
    return x.repeat(2, *[1] * (x.dim() - 1))


# From `exp`, `erf` and exactly rounded steps, which have one result in every lane. The form of gelu with a hyperbolic
# tangent is x / (1 + e^-2u), u = √(2/π) × (x + 0.044715 x³).
_IN_EXACT_STEPS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: x / x.neg().exp_().add_(1),
    "gelu": lambda x: (x * math.sqrt(0.5)).erf_().add_(1).mul_(x).mul_(0.5),
    "gelu_tanh": lambda x: x / (x * x * x * 0.044715 + x).mul_(-math.sqrt(8 / math.pi)).exp_().add_(1),
    "gelu_sigmoid": lambda x: x / (x * -1.702).exp_().add_(1),
    "relu": lambda x: x.clamp_min(0),
    "relu2": lambda x: x.clamp_min(0).square_(),
}


@apply_activation_invariant.implement("torch")
def apply_activation_in_exact_steps(x: Tensor, activation: Activation) -> Tensor:
    return _IN_EXACT_STEPS[activation](x)


@gate_invariant.implement("torch")
def gate_in_exact_steps(gate_up: Tensor, activation: Activation) -> Tensor:
    gates, ups = gate_up.chunk(2, -1)
    return _IN_EXACT_STEPS[activation](gates).mul_(ups)
