"""What happens to each row between two products: norms, rotation, activation, embedding, log-softmax.

Sums run along a row in torch's fixed order. Two things of torch are not row-invariant, and the `_invariant` forms go
round them: `silu` rounds differently in the tail of a vector loop, and the sum of a lone long row is split over
threads. Knows nothing of layers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..registry import op


@op()
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(mean(x²) + ε) × weight over the last dimension; the weight may differ per head."""
    return (F.rms_norm(x.float(), x.shape[-1:], None, epsilon).to(x.dtype)).mul_(weight)


@op()
def rms_norm_invariant(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """`rms_norm`, a lone row in the company of its double."""
    if x.shape[0] > 1:
        return rms_norm.reference(x, weight, epsilon)
    return rms_norm.reference(x.repeat(2, *[1] * (x.dim() - 1)), weight, epsilon)[:1]


@op()
def rotate_halves(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate element i of each head against element i + half; `sin` carries the sign: [-sin, sin]."""
    return torch.roll(heads, heads.shape[-1] // 2, -1).mul_(sin).add_(heads * cos)


@op()
def rotate_pairs(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbours 2i and 2i + 1 of each head against one another; `sin` carries the sign: -sin, sin, -sin, …"""
    partners = heads.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return partners.mul_(sin).add_(heads * cos)


@op()
def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(first half) × second half."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate).mul_(up)


@op()
def silu_mul_invariant(gate_up: Tensor) -> Tensor:
    """`silu_mul` from `exp` and exactly rounded steps, which have one result in every lane."""
    gate, up = gate_up.chunk(2, -1)
    return (gate / gate.neg().exp_().add_(1)).mul_(up)


@op()
def embedding(token_ids: Tensor, table: Tensor, first: int) -> Tensor:
    """Rows of a table that holds the ids from `first` on; ids outside of it give zeros."""
    local = token_ids - first
    is_outside = (local < 0) | (local >= table.shape[0])
    return F.embedding(local.masked_fill(is_outside, 0), table).masked_fill_(is_outside[:, None], 0)


@op()
def log_softmax(logits: Tensor) -> Tensor:
    """Logarithms of the distribution, in float32. torch sums each row by itself, so one form serves both sets."""
    return torch.log_softmax(logits.float(), -1)
