"""The operations that layers call: one interface for two ways of computing.

On tensors (`torch/operations.py`, `triton/operations.py`) a call computes at once. Where a step is recorded for native
kernels (`cpu/operations.py`), the same call records what is to be computed, with buffers in place of tensors. Layers
can't tell the difference.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .experts import ExpertWeights, Routing
from .lora import LoraConfig, LoraWeights
from .operands import Activation, HeadLayout, LatentLayout, PeerMemory, PlacedRows, ProjectionNorm, WeightFormat
from .reference.pointwise import add, add_part_norms, add_rows, cap, gate_heads, gather_rows, multiply, put_rows
from .reference.projection_norm import norm_projections, square_sums
from .reference.states import causal_convolution, delta_net, gated_norm
from .states import DeltaHeads, LayerStates, Segments, StateActivation
from .stored.parts import WeightPart


class LayerKV(NamedTuple):
    """One layer's part of the KV memory."""

    keys: Tensor
    values: Tensor


class Ranks(Protocol):
    """The processes that share a model, as operations see them."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def peers(self) -> PeerMemory | None:
        """Memory that the kernels of all ranks read and write, where there is any."""

    def all_reduce(self, x: Tensor) -> Tensor: ...

    def all_gather(self, x: Tensor, total: int) -> Tensor: ...

    def span(self, total: int) -> tuple[int, int]: ...

    def exchange(self, numbers: list[int]) -> list[list[int]]:
        """All ranks' numbers, in the order of the ranks."""


class Operations(Protocol):
    """Rows are [tokens, width]; `stream` is changed in place, all else is new."""

    def pack(self, parts: list[WeightPart], format: WeightFormat) -> Any:
        """A weight from blocks of its outputs, [out, in] each; they may be views of a file."""

    def pack_experts(self, parts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> Any:
        """The weights of so many experts of one shape, each from blocks of its outputs, read one after the other."""

    def fitting_experts(self, weights: ExpertWeights, hidden: int) -> ExpertWeights:
        """The same in kinds of numbers that are computed with together."""

    def table(self, part: WeightPart, format: WeightFormat) -> Any:
        """An embedding's table, of which rows are read."""

    def tied_weight(self, table: Any, format: WeightFormat) -> Any:
        """The weight of a head that is tied to this table."""

    def lora(self, in_features: int, outputs: list[int], config: LoraConfig) -> LoraWeights:
        """Room for the adapters of one product, whose outputs are parts side by side."""

    def embedding(self, token_ids: Any, table: Any, first: int, scale: float) -> Any: ...

    def linear(self, x: Any, weight: Any, bias: Tensor | None) -> Any: ...

    def add_lora(self, product: Any, x: Any, lora: Any, adapted: Any) -> Any:
        """The product with what the adapters of the step's tokens make of `x` added in place."""

    def add_rms_norm(self, stream: Any, update: Any | None, weight: Tensor, epsilon: float, scale: float = 1.0) -> Any:
        """Adds scale × the update, if any, to the stream; gives the stream's norm."""

    def add_layer_norm(
        self, stream: Any, update: Any | None, weight: Tensor, bias: Tensor | None, epsilon: float, scale: float = 1.0
    ) -> Any:
        """The same with a norm that takes off the mean."""

    def square_sums(self, heads: Any, norm: ProjectionNorm) -> Any:
        """[T, 2]: what a norm of all heads together divides by, of queries and of keys; ranks add theirs up."""

    def norm_projections(self, product: Any, sums: Any, norm: ProjectionNorm) -> Any:
        """Norms queries and keys in place, given those sums."""

    def store_heads(self, heads: Any, layout: HeadLayout, rotation: Any, kv: Any, rows: Any) -> Any:
        """Norms query and key heads, rotates them if there is a rotation, stores keys and values, gives the query."""

    def attention(self, query: Any, layout: HeadLayout, kv: Any, rows: Any, window: int | None) -> Any: ...

    def gate_heads(self, attended: Any, heads: Any, layout: HeadLayout) -> Any:
        """attended × sigmoid(gate), the gates standing where `heads` were projected."""

    def store_latents(self, latents: Any, layout: LatentLayout, rotation: Any, kv: Any, rows: Any) -> None:
        """Norms the latents, rotates the keys beside them, stores both in their slots."""

    def latent_query(self, query: Any, weights: Sequence[Any], layout: LatentLayout, rotation: Any) -> Any:
        """[T, heads × width]: of each head its product with its own weight, and its rotated part."""

    def latent_attention(self, query: Any, layout: LatentLayout, kv: Any, rows: Any) -> Any:
        """[T, heads × rank]: of each head the weighted sum of latents."""

    def latent_values(self, attended: Any, weights: Sequence[Any], layout: LatentLayout) -> Any:
        """[T, heads × value_dim]: of each head the product of its sum with its own weight."""

    def causal_convolution(
        self,
        x: Any,
        weight: Tensor,
        bias: Tensor | None,
        activation: StateActivation,
        states: LayerStates,
        segments: Any,
    ) -> Any:
        """[T, channels]: a sum over each channel's last inputs, with the weights [channels, width]."""

    def delta_net(self, convolved: Any, b: Any, a: Any, heads: DeltaHeads, states: LayerStates, segments: Any) -> Any:
        """[T, value heads × value_dim] of a gated delta net, of which the state is written. The inputs may be, too."""

    def gated_norm(self, x: Any, gate: Any, weight: Tensor, epsilon: float, num_heads: int) -> Any:
        """norm(x) × weight × silu(gate), the norm by head."""

    def apply_activation(self, x: Any, activation: Activation) -> Any: ...

    def gate(self, gate_up: Any, activation: Activation) -> Any:
        """The first half of each row, activated, times the second half."""

    def route(
        self,
        logits: Any,
        bias: Tensor | None,
        routing: Routing,
        factors: Tensor | None = None,
        token_kinds: Any = None,
        kind: int = 0,
    ) -> Any:
        """The experts of each token, and what their outputs are multiplied by, from a router's logits.

        An expert's bias takes part in the choice alone, its factor in what its output is multiplied by. Where tokens
        have kinds, those of another kind have no experts.
        """

    def experts(self, x: Any, routes: Any, weights: ExpertWeights) -> Any:
        """[T, hidden]: of each token the weighted sum over those of its experts that are here."""

    def add(self, stream: Any, update: Any, scale: float = 1.0, factor: float = 1.0) -> Any:
        """(stream + scale × update) × factor, in the stream's place."""

    def add_part_norms(self, total: Any, x: Any, weight: Tensor, epsilon: float) -> Any:
        """Adds to the total the norm of `x`, in which each part as long as the weight has one of its own."""

    def cap(self, product: Any, limit: float) -> Any:
        """limit × tanh(product / limit), in place."""

    def multiply(self, x: Any, y: Any, part: int = 0) -> Any:
        """x × y, number by number; of a wider y the part of this number."""

    def add_gated(self, total: Any, update: Any, gate: Any) -> Any:
        """Adds update × sigmoid(gate) to the total, the gate a number a row."""

    def gather_rows(self, x: Any, indices: Any) -> Any:
        """The rows of `x` with these indices."""

    def put_rows(self, stream: Any, placed: Any, part: int = 0) -> Any:
        """In the stream, in the place of their tokens' rows, the rows that were made elsewhere: of each this part."""

    def add_rows(self, stream: Any, placed: Any, part: int = 0) -> Any:
        """The same, added to their tokens' rows."""

    def all_reduce(self, x: Any) -> Any:
        """The sum over the ranks."""

    def all_gather(self, x: Any, total: int) -> Any:
        """[rows, total] in float32 from every rank's share of it; rank 0 at least has it all."""


@dataclass(frozen=True)
class TensorOperations:
    """What is the same for all that compute at once, on tensors."""

    device: torch.device
    activations: torch.dtype
    ranks: Ranks

    def fitting_experts(self, weights: ExpertWeights, hidden: int) -> ExpertWeights:
        return weights

    def add(self, stream: Tensor, update: Tensor, scale: float = 1.0, factor: float = 1.0) -> Tensor:
        return add(stream, update, scale, factor)

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

    def all_reduce(self, x: Any) -> Any:
        return self.ranks.all_reduce(x)

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        return self.ranks.all_gather(x.float(), total)
