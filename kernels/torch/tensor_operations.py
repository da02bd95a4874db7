"""The operations that torch's own and Triton's share, computed on tensors at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..arrays import Array
from ..experts import ExpertWeights
from ..operands import HeadLayout, PlacedRows, ProjectionNorm
from ..operations import Ranks
from ..reference.pointwise import add, add_part_norms, add_rows, cap, gate_heads, gather_rows, multiply, put_rows
from ..reference.projection_norm import norm_projections, square_sums
from ..reference.states import causal_convolution, delta_net, gated_norm
from ..states import DeltaHeads, LayerStates, Segments, StateActivation
from .arrays import tensor_of


@dataclass(frozen=True)
class TensorOperations:
    device: torch.device
    activations: torch.dtype
    ranks: Ranks

    def vector(self, array: Array) -> Tensor:
        return tensor_of(array).to(self.device, self.activations, copy=True)

    def exact_vector(self, array: Array) -> Tensor:
        return tensor_of(array).to(self.device, torch.float32, copy=True)

    def fitting_experts(self, weights: ExpertWeights, hidden: int) -> ExpertWeights:
        return weights

    def add(self, stream: Tensor, update: Tensor, scale: float = 1.0, factor: float = 1.0) -> Tensor:
        return add(stream, update, scale, factor)

    def added(self, x: Tensor, update: Tensor, scale: float = 1.0) -> Tensor:
        return add(x.clone(), update, scale, 1.0)

    def add_part_norms(self, total: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        return add_part_norms(total, x, weight, epsilon)

    def cap(self, product: Tensor, limit: float) -> Tensor:
        return cap(product, limit)

    def multiply(self, x: Tensor, y: Tensor, part: int = 0) -> Tensor:
        return multiply(x, y, part)

    def gather_rows(self, x: Tensor, indices: Tensor) -> Tensor:
        return gather_rows(x, indices)

    def put_rows(self, stream: Tensor, placed: PlacedRows | None, part: int = 0) -> Tensor:
        return stream if placed is None else put_rows(stream, placed, part)

    def placed_rows(self, placed: PlacedRows, width: int, part: int = 0) -> Tensor:
        stream = placed.kept.new_empty(len(placed.tokens), width)
        return put_rows(stream, placed, part)

    def add_rows(self, stream: Tensor, placed: PlacedRows | None, part: int = 0) -> Tensor:
        return stream if placed is None else add_rows(stream, placed, part)

    def square_sums(self, heads: Tensor, norm: ProjectionNorm) -> Tensor:
        return square_sums(heads, norm)

    def norm_projections(self, product: Tensor, sums: Tensor, norm: ProjectionNorm) -> Tensor:
        return norm_projections(product, sums, norm)

    def gate_heads(self, attended: Tensor, heads: Tensor, layout: HeadLayout) -> Tensor:
        return gate_heads(attended, heads, layout)

    def causal_convolution(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        activation: StateActivation,
        states: LayerStates,
        segments: Segments,
    ) -> Tensor:
        return causal_convolution(x, weight, bias, activation, states, segments)

    def delta_net(
        self, convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
    ) -> Tensor:
        return delta_net(convolved, b, a, heads, states, segments)

    def gated_norm(self, x: Tensor, gate: Tensor, weight: Tensor, epsilon: float, num_heads: int) -> Tensor:
        return gated_norm(x, gate, weight, epsilon, num_heads)

    def all_reduce(self, x: Tensor) -> Tensor:
        return self.ranks.all_reduce(x)

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        return self.ranks.all_gather(x.float(), total)
