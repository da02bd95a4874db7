"""The operations that layers call where rows may be few: norms and products wait to be fused with what follows them.

A layer of few answers is six launches: a product with the norm before it, the storing of heads, attention, a product
added to the stream, a gated product with the norm before it, a product added to the stream. Steps of many rows go as in
`TritonOperations`. A row's bits depend on the number of rows, so this is no invariant layout. See `deferred.py`.
"""

from typing import Any

from torch import Tensor

from ..experts import ExpertWeights, Routes, Routing
from ..operands import Activation, HeadLayout, Norm, ProjectionNorm
from ..paged import DeviceRows, PagedKV, Rotation
from ..states import DeltaHeads, LayerStates, Segments, StateActivation
from ..torch.packed.gpu_weights import GpuWeight
from .deferred import DeferredNorm, DeferredProduct, Value, plain
from .operations import Multiplier, TritonOperations
from .products.few_rows.choice import NORMED_ROWS
from .products.lora import DeviceLoraMapping, TritonLora
from .products.tiles.tiles import FEW_ROWS


class FusedOperations(TritonOperations):
    """Operations whose norms and products may be deferred."""

    def linear(self, x: Value, weight: Multiplier, bias: Tensor | None) -> Value:
        if 0 < x.shape[0] <= FEW_ROWS and not weight.is_exact and isinstance(weight.weight, GpuWeight):
            return DeferredProduct(x if isinstance(x, DeferredNorm) else plain(x), weight.weight, bias)
        return super().linear(plain(x), weight, bias)

    def add_lora(self, product: Value, x: Value, lora: TritonLora, adapted: DeviceLoraMapping | None) -> Value:
        return product if adapted is None else super().add_lora(plain(product), plain(x), lora, adapted)

    def add_rms_norm(
        self, stream: Value, update: Value | None, weight: Tensor, epsilon: float, scale: float = 1.0
    ) -> Value:
        stream = plain(stream)
        if isinstance(update, DeferredProduct) and scale == 1.0:
            update.added_to(stream)
            update = None
        if update is None and 0 < len(stream) <= NORMED_ROWS:
            return DeferredNorm(stream, Norm(weight, epsilon))
        return super().add_rms_norm(stream, None if update is None else plain(update), weight, epsilon, scale)

    def add_layer_norm(
        self,
        stream: Value,
        update: Value | None,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        scale: float = 1.0,
    ) -> Tensor:
        update = None if update is None else plain(update)
        return super().add_layer_norm(plain(stream), update, weight, bias, epsilon, scale)

    def store_heads(
        self, heads: Value, layout: HeadLayout, rotation: Rotation | None, kv: PagedKV, rows: DeviceRows
    ) -> Any:
        return super().store_heads(plain(heads), layout, rotation, kv, rows)

    def apply_activation(self, x: Value, activation: Activation) -> Tensor:
        return super().apply_activation(plain(x), activation)

    def gate(self, gate_up: Value, activation: Activation) -> Tensor:
        if isinstance(gate_up, DeferredProduct) and activation == "silu":
            return gate_up.gated()
        return super().gate(plain(gate_up), activation)

    def square_sums(self, heads: Value, norm: ProjectionNorm) -> Tensor:
        return super().square_sums(plain(heads), norm)

    def norm_projections(self, product: Value, sums: Value, norm: ProjectionNorm) -> Tensor:
        return super().norm_projections(plain(product), plain(sums), norm)

    def gate_heads(self, attended: Value, heads: Value, layout: HeadLayout) -> Tensor:
        return super().gate_heads(plain(attended), plain(heads), layout)

    def causal_convolution(
        self,
        x: Value,
        weight: Tensor,
        bias: Tensor | None,
        activation: StateActivation,
        states: LayerStates,
        segments: Segments,
    ) -> Tensor:
        return super().causal_convolution(plain(x), weight, bias, activation, states, segments)

    def delta_net(
        self, convolved: Value, b: Value, a: Value, heads: DeltaHeads, states: LayerStates, segments: Segments
    ) -> Tensor:
        return super().delta_net(plain(convolved), plain(b), plain(a), heads, states, segments)

    def gated_norm(self, x: Value, gate: Value, weight: Tensor, epsilon: float, num_heads: int) -> Tensor:
        return super().gated_norm(plain(x), plain(gate), weight, epsilon, num_heads)

    def route(
        self,
        logits: Value,
        bias: Tensor | None,
        routing: Routing,
        factors: Tensor | None = None,
        token_kinds: Tensor | None = None,
        kind: int = 0,
    ) -> Routes:
        return super().route(plain(logits), bias, routing, factors, token_kinds, kind)

    def experts(self, x: Value, routes: Routes, weights: ExpertWeights) -> Tensor:
        return super().experts(plain(x), routes, weights)

    def multiply(self, x: Value, y: Value, part: int = 0) -> Tensor:
        return super().multiply(plain(x), plain(y), part)

    def add_gated(self, total: Value, update: Value, gate: Value) -> Tensor:
        return super().add_gated(plain(total), plain(update), plain(gate))

    def add(self, stream: Value, update: Value, scale: float = 1.0, factor: float = 1.0) -> Tensor:
        stream = plain(stream)
        if isinstance(update, DeferredProduct) and scale == factor == 1.0:
            return update.added_to(stream)
        return super().add(stream, plain(update), scale, factor)

    def added(self, x: Value, update: Value, scale: float = 1.0) -> Tensor:
        return super().added(plain(x), plain(update), scale)

    def cap(self, product: Value, limit: float) -> Tensor:
        return super().cap(plain(product), limit)

    def all_reduce(self, x: Value) -> Value:  # type: ignore[override]  # one rank's may stay deferred
        return x if self.ranks.size == 1 else super().all_reduce(plain(x))

    def all_gather(self, x: Value, total: int) -> Tensor:
        return super().all_gather(plain(x), total)
