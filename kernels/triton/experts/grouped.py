"""The formula of `kernels/reference/gpu_experts.py` by torch's grouped products: very many pairs, bfloat16, no biases.

Pairs are sorted by expert and a token's outputs are added up by our own kernel. Nothing asks the host, so that a step
can be captured. Pairs of experts that are elsewhere come last, and belong to no group.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...experts import ExpertWeights, GatedActivation, Routes
from ...reference.experts import activate
from ...torch.packed.gpu_experts import GpuExperts
from ..launch.switches import GROUPED_PRODUCTS
from ..pointwise import gate

_LEAST_PAIRS_OF_AN_EXPERT = 64  # in the mean: fewer are bound by the weights' bytes
_ALIGNED = 8  # numbers of 16 bits

AddUp = Callable[[Tensor], Tensor]  # from the outputs of all pairs


def serves(x: Tensor, routes: Routes, weights: ExpertWeights) -> bool:
    return (
        GROUPED_PRODUCTS.is_on
        and routes.experts.numel() >= _LEAST_PAIRS_OF_AN_EXPERT * weights.num_experts
        and can(x, weights)
    )


def can(x: Tensor, weights: ExpertWeights) -> bool:
    """Whether torch has products for such rows and weights."""
    are_alike = all(each.weight.values.dtype == x.dtype for each in (weights.gate_up, weights.down))
    sizes = (x.shape[1], weights.width)
    are_plain = weights.gate_up_bias is None and weights.down_bias is None
    return are_alike and are_plain and x.dtype == torch.bfloat16 and not any(size % _ALIGNED for size in sizes)


def grouped_experts(x: Tensor, routes: Routes, weights: ExpertWeights, add_up: AddUp) -> Tensor:
    chosen, top_k = routes.experts.flatten().long() - weights.first, routes.experts.shape[1]
    chosen = torch.where((chosen >= 0) & (chosen < weights.num_experts), chosen, weights.num_experts)
    chosen, order = chosen.sort(stable=True)
    numbers = torch.arange(weights.num_experts, device=x.device)
    ends = torch.searchsorted(chosen, numbers, right=True).int()
    inner = _activated(_product(x[order // top_k], weights.gate_up, ends), weights.activation)
    outputs = torch.empty(len(order), x.shape[1], dtype=x.dtype, device=x.device)
    return add_up(outputs.index_copy_(0, order, _product(inner, weights.down, ends)))


def _product(rows: Tensor, experts: GpuExperts, ends: Tensor) -> Tensor:
    """Rows behind the last end get anything."""
    matrices = experts.weight.values.view(experts.num_experts, experts.out_features, -1)
    return F.grouped_mm(rows, matrices.transpose(1, 2), offs=ends)


def _activated(gate_up: Tensor, activation: GatedActivation) -> Tensor:
    return gate(gate_up, "silu") if activation == GatedActivation() else activate.reference(gate_up, activation)
