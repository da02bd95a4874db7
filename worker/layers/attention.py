"""Self-attention: project, rotate, store the keys and values, attend to the stored ones, project back.

Some layers store nothing and attend to the keys and values of an earlier layer.

Attention reads only the KV memory, even for the step's own tokens, so the chunking of a prompt changes nothing.
"""

import math
from typing import Protocol

import numpy

from ...kernels import HeadLayout
from ...kernels.operands import ProjectionNorm, Vector
from ..description.config import ModelConfig
from ..description.families.family import QKV
from ..description.parts.heads import LayerHeads
from ..steps.batch import LayerInputs
from ..weights.weights import Rows, Weights
from .linear import QKVLinear, RowLinear, local_kv_heads
from .norm import norm_vector


class Projection(Protocol):
    """A projection to queries, keys and values, with its numbers of heads on this rank."""

    @property
    def local_heads(self) -> int: ...

    @property
    def local_kv_heads(self) -> int: ...


class ProjectedAttention:
    """One layer's attention over the heads of this rank, from projected queries, keys and values on."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int, projection: Projection) -> None:
        self.layer = layer
        self.ops = weights.ops
        self.window = config.windows[layer]
        heads = config.heads[layer]
        self.joint_norm = _joint_norm(weights, config, heads) if config.qk_norm == "together" else None
        self.layout = HeadLayout(
            projection.local_heads,
            projection.local_kv_heads,
            heads.head_dim,
            config.family.rotates_pairs,
            _head_norms(weights, config, heads),
            config.rms_norm_eps,
            self._sinks(weights, config) if config.family.has_sinks else None,
            config.rotary_dim(layer),
            is_gated=config.family.gates_attention,
            norms_have_mean=config.family.norm.has_mean,
            norms_follow=config.family.norms_after_rotation,
            norms_values=config.family.norms_values,
            num_projected_keys=heads.num_projected,
            given_scale=config.scales.scores,
            softcap=config.scales.score_cap,
        )
        width, (first, last) = config.num_heads * heads.head_dim, weights.placement.ranks.span(config.num_heads)
        span = first * heads.head_dim, last * heads.head_dim
        self.output = RowLinear(weights.at(config.family.names.attention_output), width, config.hidden_size, span)

    def _sinks(self, weights: Weights, config: ModelConfig) -> Vector:
        """The sinks of this rank's heads."""
        first, last = weights.placement.ranks.span(config.num_heads)
        return weights.exact_vector("sinks", (config.num_heads,), (0, first, last))

    def attend(self, heads: Rows, batch: LayerInputs) -> Rows:
        """Return this rank's share of the sum, [T, hidden], from what was projected."""
        kv, rows, rotation = batch.of_layer(self.layer)
        if self.joint_norm is not None:
            sums = self.ops.all_reduce(self.ops.square_sums(heads, self.joint_norm))  # [T, 2]
            heads = self.ops.norm_projections(heads, sums, self.joint_norm)
        query = self.ops.store_heads(heads, self.layout, rotation, kv, rows)  # [T, heads, head_dim]
        attended = self.ops.attention(query, self.layout, kv, rows, self.window)  # [T, heads × head_dim]
        if self.layout.is_gated:
            attended = self.ops.gate_heads(attended, heads, self.layout)
        return self.output.of_rank(attended, batch.adapted)  # [T, hidden]


class Attention(ProjectedAttention):
    """One layer's attention over the heads of this rank."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        heads = config.heads[layer]
        self.qkv = QKVLinear(
            weights,
            list(QKV[: 1 + heads.num_projected]),
            config.hidden_size,
            config.num_heads,
            heads.num_kv_heads,
            heads.head_dim,
            config.family.gates_attention,
        )
        super().__init__(weights, config, layer, self.qkv)

    def __call__(self, x: Rows, batch: LayerInputs) -> Rows:
        return self.ops.all_reduce(self.of_rank(x, batch))  # [T, hidden]

    def of_rank(self, x: Rows, batch: LayerInputs) -> Rows:
        """Return this rank's share of the sum, [T, hidden] like `x`."""
        heads = self.qkv(x, batch.adapted)  # [T, (heads + 2 × kv_heads) × head_dim]: queries, maybe keys and values
        return self.attend(heads, batch)


def _head_norms(weights: Weights, config: ModelConfig, heads: LayerHeads) -> tuple[Vector, Vector | None] | None:
    """The norms of queries and keys: one weight for all heads, [head_dim], or one for each, [heads, head_dim]."""
    if config.qk_norm in (None, "together"):
        return None
    ranks, is_less_one = weights.placement.ranks, config.family.norm.is_stored_less_one
    names = [weights.at(config.family.qk_norm_name.format(part)) for part in "qk"]
    if config.qk_norm == "by head":
        parts = names if heads.num_projected else names[:1]
        query, *key = (norm_vector(each, "weight", (heads.head_dim,), is_less_one) for each in parts)
        return query, key[0] if key else None
    counts = (config.num_heads, heads.num_kv_heads)
    spans = ranks.span(config.num_heads), local_kv_heads(ranks.rank, ranks.size, heads.num_kv_heads)
    query_norms, key_norms = (
        _norms_of_heads(each, (count, heads.head_dim), span, config)
        for each, count, span in zip(names, counts, spans, strict=True)
    )
    return query_norms, key_norms


def _norms_of_heads(weights: Weights, shape: tuple[int, int], span: tuple[int, int], config: ModelConfig) -> Vector:
    """This rank's [heads, head_dim], from one tensor for all heads or one per head."""
    if config.qk_norm == "each head its own":
        return weights.vector("weight", shape, (0, *span))
    heads = [weights.at("norms").at(head).read("weight", shape[1:]) for head in range(*span)]
    for head in {*range(shape[0])} - {*range(*span)}:
        weights.at("norms").at(head).pass_over("weight")
    return weights.ops.vector(numpy.stack(heads))


def _joint_norm(weights: Weights, config: ModelConfig, heads: LayerHeads) -> ProjectionNorm:
    """The norm over all heads of a token; if ranks share a key head, each counts its part of it."""
    ranks, head_dim = weights.placement.ranks, heads.head_dim
    first, last = ranks.span(config.num_heads)
    first_key, last_key = local_kv_heads(ranks.rank, ranks.size, heads.num_kv_heads)
    query, key = (
        weights.at(name).vector("weight", (count * head_dim,), (0, begin * head_dim, end * head_dim))
        for name, count, begin, end in (
            ("q_norm", config.num_heads, first, last),
            ("k_norm", heads.num_kv_heads, first_key, last_key),
        )
    )
    key_total = max(heads.num_kv_heads, ranks.size) * head_dim
    limit = math.inf if config.qkv_limit is None else config.qkv_limit
    return ProjectionNorm(query, key, config.num_heads * head_dim, key_total, config.rms_norm_eps, limit)
