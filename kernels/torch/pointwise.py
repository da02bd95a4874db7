"""Row-invariant forms of what happens to a row between two products.

Sums run along a row in torch's fixed order. Two things of torch are not row-invariant, and these forms go round them:
`silu` rounds differently in the tail of a vector loop, and the sum of a lone long row is split over threads. All else,
log-softmax too, torch computes for each row by itself.
"""

from torch import Tensor

from ..reference.pointwise import rms_norm, rms_norm_invariant, silu_mul_invariant


@rms_norm_invariant.implement("torch")
def rms_norm_in_company(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """A lone row in the company of its double."""
    if x.shape[0] > 1:
        return rms_norm.reference(x, weight, epsilon)
    return rms_norm.reference(x.repeat(2, *[1] * (x.dim() - 1)), weight, epsilon)[:1]


@silu_mul_invariant.implement("torch")
def silu_mul_in_exact_steps(gate_up: Tensor) -> Tensor:
    """From `exp` and exactly rounded steps, which have one result in every lane."""
    gate, up = gate_up.chunk(2, -1)
    return (gate / gate.neg().exp_().add_(1)).mul_(up)
