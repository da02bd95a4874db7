"""The operations that layers call, computed at once by torch's own operations.

In the invariant form the bits of a row depend on that row alone, never on the batch that it is computed in. A tree
picks one form when it starts and keeps it for prompt and answer rows alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..experts import ExpertWeights, Routes, Routing
from ..lora import LoraConfig, LoraMapping
from ..operands import DTYPES, Activation, HeadLayout, LatentLayout, TokenRotation, WeightFormat
from ..operations import LayerKV, Operations
from ..reference.attention import attention, write_kv
from ..reference.experts import activate, add_gated, route
from ..reference.lora import add_lora
from ..reference.pointwise import (
    add,
    add_part_norms,
    apply_activation,
    embedding,
    gate,
    layer_norm,
    rms_norm,
    rotate_halves,
    rotate_pairs,
    rotated,
    rotated_queries,
)
from ..reference.products import linear
from ..registry import Op
from ..rows import HostRows
from ..stored.parts import WeightPart
from . import attention as _attention  # noqa: F401  registers versions
from . import attention_invariant, choice, order, pointwise  # noqa: F401  so do these
from .arrays import torch_dtype
from .packed.torch_weights import PackedWeight, pack
from .parts import floats_of
from .products import TorchLora
from .tensor_operations import TensorOperations


@dataclass(frozen=True)
class TorchOperations(TensorOperations):
    is_invariant: bool = False

    def form(self, operation: Op) -> Op:
        """The one that this tree computes."""
        return operation.row_invariant if self.is_invariant and operation.row_invariant else operation

    def pack(self, parts: list[WeightPart], format: WeightFormat) -> PackedWeight:
        placed = [floats_of(part, DTYPES[format.kind], self.device) for part in parts]
        return pack(placed[0] if len(placed) == 1 else torch.cat(placed))

    def pack_experts(self, parts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> list[PackedWeight]:
        return [self.pack(each, format) for each in parts]

    def table(self, part: WeightPart, format: WeightFormat) -> Tensor:
        return floats_of(part, DTYPES[format.kind], self.device, copy=True)

    def tied_weight(self, table: Tensor, format: WeightFormat) -> PackedWeight:
        return pack(table.to(torch_dtype(DTYPES[format.kind])))

    def lora(self, in_features: int, outputs: list[int], config: LoraConfig) -> TorchLora:
        return TorchLora(in_features, outputs, config, self.device)

    def embedding(self, token_ids: Tensor, table: Tensor, first: int, scale: float) -> Tensor:
        return embedding(token_ids, table, first, scale).to(self.activations)

    def linear(self, x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
        # Among 16-bit rows exact products are for choices: routers. What comes out must not be rounded either.
        rows = x.float() if weight.dtype == torch.float32 else x
        return self.form(linear)(rows, weight, bias)

    def add_lora(self, product: Tensor, x: Tensor, lora: TorchLora, adapted: LoraMapping | None) -> Tensor:
        return product if adapted is None else self.form(add_lora)(product, x, lora, adapted)

    def add_rms_norm(
        self, stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float, scale: float = 1.0
    ) -> Tensor:
        return self.form(rms_norm)(stream if update is None else add(stream, update, scale), weight, epsilon)

    def add_layer_norm(
        self,
        stream: Tensor,
        update: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        scale: float = 1.0,
    ) -> Tensor:
        whole = stream if update is None else add(stream, update, scale)
        return self.form(layer_norm)(whole, weight, bias, epsilon)

    def add_part_norms(self, total: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        return self.form(add_part_norms)(total, x, weight, epsilon)

    def store_heads(
        self, heads: Tensor, layout: HeadLayout, rotation: TokenRotation | None, kv: LayerKV, rows: HostRows
    ) -> Tensor:
        query, key, value = layout.split(heads)
        if layout.norms_values:
            value = self.form(rms_norm)(value, value.new_ones(layout.head_dim), layout.epsilon)
        if not layout.norms_follow:
            query, key = self._normed_heads(query, key, layout)
        query, key = rotated_queries(query, layout, rotation), rotated(key, layout, rotation)
        if layout.norms_follow:
            query, key = self._normed_heads(query, key, layout)
        if not layout.num_projected_keys:
            return query
        # Every row's keys and values are stored before any row attends: rows may share blocks within a step.
        write_kv(key, value, kv.keys, kv.values, rows)
        return query

    def attention(self, query: Tensor, layout: HeadLayout, kv: LayerKV, rows: HostRows, window: int | None) -> Tensor:
        return self.form(attention)(
            query, kv.keys, kv.values, rows, layout.scale, window, layout.sinks, layout.softcap
        ).flatten(1)

    def _normed_heads(self, query: Tensor, key: Tensor, layout: HeadLayout) -> tuple[Tensor, Tensor]:
        if layout.norms is None:
            return query, key
        of_queries, of_keys = layout.norms

        def normed(heads: Tensor, weight: Tensor) -> Tensor:
            if layout.norms_have_mean:
                return self.form(layer_norm)(heads, weight, None, layout.epsilon)
            return self.form(rms_norm)(heads, weight, layout.epsilon)

        return normed(query, of_queries), key if of_keys is None else normed(key, of_keys)

    def store_latents(
        self, latents: Tensor, layout: LatentLayout, rotation: TokenRotation, kv: LayerKV, rows: HostRows
    ) -> None:
        latent, key = latents.split((layout.rank, layout.rope_dim), 1)
        normed = self.form(rms_norm)(latent.contiguous(), layout.norm, layout.epsilon)
        kept = torch.cat((normed[:, None], _rotated(key[:, None], layout, rotation)), 2)  # [T, 1, width]
        write_kv(kept, kept, kv.keys, kv.values, rows)

    def latent_query(
        self, query: Tensor, weights: Sequence[PackedWeight], layout: LatentLayout, rotation: TokenRotation
    ) -> Tensor:
        nope, key = query.unflatten(1, (layout.num_heads, -1)).split((layout.nope_dim, layout.rope_dim), 2)
        return torch.cat((self._by_head(nope, weights), _rotated(key, layout, rotation)), 2).flatten(1)

    def latent_attention(self, query: Tensor, layout: LatentLayout, kv: LayerKV, rows: HostRows) -> Tensor:
        by_head = query.unflatten(1, (layout.num_heads, -1))
        # A value is the beginning of its key.
        attended = self.form(attention)(by_head, kv.keys, kv.values, rows, layout.scale, None, None)
        return attended[:, :, : layout.rank].flatten(1)

    def latent_values(self, attended: Tensor, weights: Sequence[PackedWeight], layout: LatentLayout) -> Tensor:
        return self._by_head(attended.unflatten(1, (layout.num_heads, -1)), weights).flatten(1)

    def _by_head(self, heads: Tensor, weights: Sequence[PackedWeight]) -> Tensor:
        """[T, heads, out] of [T, heads, in]: each head times its own weight."""
        products = [self.linear(heads[:, head].contiguous(), weight, None) for head, weight in enumerate(weights)]
        return torch.stack(products, 1)

    def apply_activation(self, x: Tensor, activation: Activation) -> Tensor:
        return self.form(apply_activation)(x, activation)

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        return self.form(gate)(gate_up, activation)

    def route(
        self,
        logits: Tensor,
        bias: Tensor | None,
        routing: Routing,
        factors: Tensor | None = None,
        token_kinds: Tensor | None = None,
        kind: int = 0,
    ) -> Routes:
        return route(logits, bias, routing, factors, token_kinds, kind)

    def experts(self, x: Tensor, routes: Routes, weights: ExpertWeights) -> Tensor:
        """By expert, and then by rank: a token's sum is made in the order in which its experts were chosen."""
        outputs = x.new_zeros(routes.experts.numel(), x.shape[1], dtype=torch.float32)  # [T × top_k, hidden]
        for number in range(weights.num_experts):
            own = (routes.experts == weights.first + number).flatten().nonzero()[:, 0]
            if len(own):
                outputs[own] = self._expert(x[own // routes.experts.shape[1]], number, weights).float()
        by_rank = (outputs.view(*routes.experts.shape, -1) * routes.weights[..., None]).unbind(1)
        total = by_rank[0]
        for each in by_rank[1:]:
            total = total + each
        return total.to(x.dtype)

    def _expert(self, rows: Tensor, number: int, weights: ExpertWeights) -> Tensor:
        gate_up_bias, down_bias = (
            None if biases is None else biases[number] for biases in (weights.gate_up_bias, weights.down_bias)
        )
        inner = activate(self.linear(rows, weights.gate_up[number], gate_up_bias), weights.activation)
        return self.linear(inner, weights.down[number], down_bias)

    def add_gated(self, total: Tensor, update: Tensor, gate: Tensor) -> Tensor:
        return add_gated(total, update, gate)


def _rotated(heads: Tensor, layout: LatentLayout, rotation: TokenRotation) -> Tensor:
    return (rotate_pairs if layout.rotates_pairs else rotate_halves)(heads, rotation.cos, rotation.sin)


_: type[Operations[Tensor, PackedWeight]] = TorchOperations  # for the type checker
