"""The operations that layers call, on a GPU: each launches one or two kernels and waits for nothing.

Rows are `DeviceRows`, memory is `PagedKV`, rotations are tables: inputs that a captured step can be replayed with. In
the invariant form a row's bits depend on that row alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..experts import ExpertWeights, Routes, Routing
from ..lora import LoraConfig
from ..operands import DTYPES, Activation, HeadLayout, Kind, WeightFormat
from ..paged import DeviceRows, PagedKV, Rotation
from ..states import DeltaHeads, LayerStates, Segments
from ..stored.block_kinds import CODES
from ..stored.parts import WeightPart
from ..torch.arrays import numpy_dtype
from ..torch.packed.gpu_blocks import kind_of, pack_blocks
from ..torch.packed.gpu_experts import GpuExperts, pack_experts
from ..torch.packed.gpu_float8 import Float8Weight, pack_float8
from ..torch.packed.gpu_weights import GpuWeight, pack
from ..torch.parts import floats_of
from ..torch.tensor_operations import TensorOperations
from . import is_interpreted, states
from .attention.paged import attention_by_shape, attention_of_one_shape
from .attention.store_heads import store_heads
from .deferred import Value
from .delta_net import delta_net, delta_net_by_token
from .experts.experts import experts, experts_invariant
from .experts.route import route
from .launch.interpreter import mend
from .pointwise import add_gated, apply_activation, embedding, gate
from .products import float8
from .products.linear import (
    JoinedWeight,
    Product,
    linear,
    linear_int8,
    linear_invariant,
    linear_joined,
    linear_weight_only,
)
from .products.lora import DeviceLoraMapping, TritonLora, add_lora
from .rms_norm import add_layer_norm, add_rms_norm
from .sampling import adjust, logprobs  # noqa: F401  register what is called by device
from .step_inputs import prepare

if is_interpreted():
    mend()


class Multiplier(NamedTuple):
    """A weight, and the product that it was packed for."""

    product: Callable[..., Tensor]  # of rows, the weight and a bias
    weight: GpuWeight | JoinedWeight | Float8Weight
    is_exact: bool = False  # gives float32, whatever the rows are

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The number formats that it is stored in."""
        return self.weight.kinds


def _exact(product: Product) -> Product:
    return lambda x, weight, bias: product(x.float(), weight, bias)


@dataclass(frozen=True)
class TritonOperations(TensorOperations):
    is_invariant: bool

    step_inputs = staticmethod(prepare)  # what a step reads, of its rows' counts

    @property
    def _own_format(self) -> WeightFormat:
        return WeightFormat.of(numpy_dtype(self.activations))

    def pack(self, parts: list[WeightPart], format: WeightFormat) -> Multiplier:
        # Neighbours in blocks of one kind make a weight, and so do those that are no blocks.
        packed = [self._packed([*run], kind, format) for kind, run in groupby(parts, kind_of)]
        if len(packed) == 1:
            return packed[0]
        products, weights, _ = zip(*packed, strict=True)
        return Multiplier(linear_joined, JoinedWeight(products, weights))

    def _packed(self, parts: list[Any], kind: Kind | None, format: WeightFormat) -> Multiplier:
        if kind is not None:
            return Multiplier(
                linear_invariant if self.is_invariant else linear_weight_only, pack_blocks(parts, self.device)
            )
        if format.kind in CODES:  # a cut through blocks comes as numbers, and so does a table that is multiplied with
            format = self._own_format
        if format.float8 == "fp8":
            stored = pack_float8(parts, self.device)
            if stored is not None and float8.serves(stored, self.activations):
                return Multiplier(float8.linear_float8, stored)
            format = replace(format, float8="int8")
        weight = pack(parts, format, self.device)
        if weight.kind == "int8" and format.quantizes_rows:
            product = linear_int8  # sums of integers are exact in any order
        elif self.is_invariant:
            product = linear_invariant
        else:
            product = linear if weight.kind in DTYPES else linear_weight_only
        # Exact ones are for choices among 16-bit rows: routers.
        is_exact = format.kind == "fp32" and self.activations != torch.float32
        return Multiplier(_exact(product) if is_exact else product, weight, is_exact)

    def pack_experts(self, parts: Iterable[list[WeightPart]], count: int, format: WeightFormat) -> GpuExperts:
        if format.kind in CODES:  # as above
            format = self._own_format
        if format.float8 == "fp8":  # experts have no such products
            format = replace(format, float8="int8")
        return pack_experts(parts, count, format, self.device)

    def table(self, part: WeightPart, format: WeightFormat) -> Tensor:
        # Rows are read, not multiplied with: kept as floats whatever the matrices are.
        dtype = DTYPES.get(format.kind, numpy_dtype(self.activations))
        return floats_of(part, dtype, self.device, copy=True)

    def tied_weight(self, table: Tensor, format: WeightFormat) -> Multiplier:
        return self._packed([table], None, format)

    def lora(self, in_features: int, outputs: list[int], config: LoraConfig) -> TritonLora:
        return TritonLora(in_features, outputs, config, self.device)

    def embedding(self, token_ids: Tensor, table: Tensor, first: int, scale: float) -> Tensor:
        return embedding(token_ids, table, first, scale).to(self.activations)

    def linear(self, x: Tensor, weight: Multiplier, bias: Tensor | None) -> Value:
        return weight.product(x, weight.weight, bias)

    def add_lora(self, product: Tensor, x: Tensor, lora: TritonLora, adapted: DeviceLoraMapping | None) -> Value:
        return product if adapted is None else add_lora(product, x, lora, adapted)

    def add_rms_norm(
        self, stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float, scale: float = 1.0
    ) -> Value:
        return add_rms_norm(stream, update, weight, epsilon, scale)

    def add_layer_norm(
        self,
        stream: Tensor,
        update: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        epsilon: float,
        scale: float = 1.0,
    ) -> Tensor:
        return add_layer_norm(stream, update, weight, bias, epsilon, scale)

    def store_heads(
        self, heads: Tensor, layout: HeadLayout, rotation: Rotation | None, kv: PagedKV, rows: DeviceRows
    ) -> Any:
        """The query, as this class's `attention` takes it."""
        return store_heads(heads, layout, rotation, kv, rows)

    def attention(self, query: Tensor, layout: HeadLayout, kv: PagedKV, rows: DeviceRows, window: int | None) -> Tensor:
        attend = attention_of_one_shape if self.is_invariant else attention_by_shape
        return attend(query, kv, rows, layout.scale, window, layout.sinks).flatten(1)

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        """Widened afterwards, which costs half the bytes and no bit: a product's outputs have the rows' format."""
        return self.ranks.all_gather(x, total).float()

    def apply_activation(self, x: Tensor, activation: Activation) -> Tensor:
        return apply_activation(x, activation)

    def gate(self, gate_up: Tensor, activation: Activation) -> Tensor:
        return gate(gate_up, activation)

    causal_convolution = staticmethod(states.causal_convolution)
    gated_norm = staticmethod(states.gated_norm)

    def delta_net(
        self, convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
    ) -> Tensor:
        return (delta_net_by_token if self.is_invariant else delta_net)(convolved, b, a, heads, states, segments)

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
        return (experts_invariant if self.is_invariant else experts)(x, routes, weights)

    def add_gated(self, total: Tensor, update: Tensor, gate: Tensor) -> Tensor:
        return add_gated(total, update, gate)
