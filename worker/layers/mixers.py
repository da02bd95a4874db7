"""The layers that keep a state instead of keys and values: gated delta nets and short convolutions.

A gated delta net: each head keeps one matrix for all earlier tokens, which each token updates.

    q, k, v = silu(convolution(qkv(x)))       each channel over its last few tokens
    S       = exp(g) S + k (β (v - exp(g) Sᵀk))ᵀ     g and β are two numbers per head, from x
    output  = out(norm(Sᵀq) × silu(z(x)))

A short convolution: a convolution of each channel over its last few tokens, between two gates.

    before, after, value = in_proj(x)
    output               = out_proj(after × convolution(before × value))

Ranks divide a net's key heads, each with its value heads, or a convolution's channels. A sequence keeps a float32 state
of fixed size: the convolution's last inputs, and the matrices.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from ...kernels import DeltaHeads, WeightFormat
from ...kernels.operands import Vector
from ..description.config import ModelConfig
from ..description.parts.mixers import DeltaNet, ShortConvolution
from ..steps.batch import LayerInputs
from ..weights.weights import Rows, Weights
from .linear import EXACT, MergedLinear, RowLinear

_Span = tuple[int, int]  # first, last + 1


class _Projection(NamedTuple):
    """The rows of one part within a projection of the checkpoint."""

    name: str
    total: int  # outputs of the projection
    spans: list[_Span]


class GatedDeltaNet:
    """One layer's delta net over the heads of this rank."""

    def __init__(self, weights: Weights, config: ModelConfig, net: DeltaNet, layer: int) -> None:
        self.layer = layer
        self.ops = weights.ops
        self.epsilon = config.rms_norm_eps
        first, last = weights.placement.ranks.span(net.num_key_heads)
        projections = _fused(net, first, last) if net.is_fused else _apart(net, first, last)
        self.qkv, self.gate = (_merged(weights, projections[part], config.hidden_size) for part in ("qkv", "z"))
        self.b, self.a = (_merged(weights, projections[part], config.hidden_size, EXACT) for part in ("b", "a"))
        self.convolution = _convolution(weights, net, first, last)  # [channels, width]
        first, last = first * net.num_shared, last * net.num_shared
        decay, bias = (
            weights.exact_vector(name, (net.num_value_heads,), (0, first, last)) for name in ("A_log", "dt_bias")
        )
        self.heads = DeltaHeads((last - first) // net.num_shared, last - first, net.key_dim, net.value_dim, decay, bias)
        self.norm = weights.at("norm").vector("weight", (net.value_dim,))
        span = first * net.value_dim, last * net.value_dim
        self.output = RowLinear(weights.at("out_proj"), net.values, config.hidden_size, span)

    def __call__(self, x: Rows, batch: LayerInputs) -> Rows:
        """Map `x`, [T, hidden], to the layer's update."""
        states, segments, _ = batch.of_layer(self.layer)
        mixed = self.qkv(x, batch.adapted)  # [T, 2 × keys + values]
        mixed = self.ops.causal_convolution(mixed, self.convolution, None, "silu", states, segments)
        b, a = self.b(x, batch.adapted), self.a(x, batch.adapted)  # [T, value heads] each
        read = self.ops.delta_net(mixed, b, a, self.heads, states, segments)  # [T, values]
        gate = self.gate(x, batch.adapted)  # [T, values]
        read = self.ops.gated_norm(read, gate, self.norm, self.epsilon, self.heads.num_value_heads)
        return self.output(read, batch.adapted)  # [T, hidden]


def _apart(net: DeltaNet, first: int, last: int) -> dict[str, _Projection]:
    """The parts of these key heads, with queries, keys and values concatenated and the others separate."""
    key = first * net.key_dim, last * net.key_dim
    heads = first * net.num_shared, last * net.num_shared
    value = heads[0] * net.value_dim, heads[1] * net.value_dim
    spans = [key, _moved(key, net.keys), _moved(value, 2 * net.keys)]
    return {
        "qkv": _Projection("in_proj_qkv", 2 * net.keys + net.values, spans),
        "z": _Projection("in_proj_z", net.values, [value]),
        "b": _Projection("in_proj_b", net.num_value_heads, [heads]),
        "a": _Projection("in_proj_a", net.num_value_heads, [heads]),
    }


def _fused(net: DeltaNet, first: int, last: int) -> dict[str, _Projection]:
    """The parts of these key heads, with one key head's parts after another's: query, key, values, gates; b, a."""
    values = net.num_shared * net.value_dim
    query, key, value, z = _spans(first, last, (net.key_dim, net.key_dim, values, values))
    b, a = _spans(first, last, (net.num_shared, net.num_shared))
    qkvz, ba = ("in_proj_qkvz", 2 * (net.keys + net.values)), ("in_proj_ba", 2 * net.num_value_heads)
    return {
        "qkv": _Projection(*qkvz, [*query, *key, *value]),
        "z": _Projection(*qkvz, z),
        "b": _Projection(*ba, b),
        "a": _Projection(*ba, a),
    }


def _spans(first: int, last: int, sizes: Sequence[int]) -> list[list[_Span]]:
    """Find the rows of heads first to last, for parts of these sizes that every head has side by side."""
    starts = [sum(sizes[:part]) for part in range(len(sizes))]
    return [
        [_moved((start, start + size), head * sum(sizes)) for head in range(first, last)]
        for start, size in zip(starts, sizes, strict=True)
    ]


def _moved(span: _Span, by: int) -> _Span:
    return span[0] + by, span[1] + by


def _merged(
    weights: Weights, projection: _Projection, in_features: int, format: WeightFormat | None = None
) -> MergedLinear:
    parts = [(projection.total, *span) for span in projection.spans]
    return MergedLinear(weights, [projection.name] * len(parts), in_features, parts, format)


def _convolution(weights: Weights, net: DeltaNet, first: int, last: int) -> Vector:
    """Load the convolution weights of these key heads, in the order of queries, keys and values."""
    of_part = _apart(net, first, last)["qkv"]
    shape = of_part.total, 1, net.conv_width
    taps = [weights.read("conv1d.weight", shape, (0, *span))[:, 0] for span in of_part.spans]
    return weights.ops.exact_vector(numpy.concatenate(taps))


class ConvolutionLayer:
    """One layer's convolution over the channels of this rank."""

    def __init__(self, weights: Weights, config: ModelConfig, convolution: ShortConvolution, layer: int) -> None:
        self.layer = layer
        self.ops = weights.ops
        total, size = convolution.channels, config.hidden_size
        first, last = span = weights.placement.ranks.span(total)
        # The checkpoint has one projection; each third of it becomes a product.
        self.before, self.after, self.value = (
            MergedLinear(weights, ["in_proj"], size, [(3 * total, third * total + first, third * total + last)])
            for third in range(3)
        )
        taps, part = weights.at("conv"), (0, *span)
        stored = taps.read("weight", (total, 1, convolution.conv_width), part)
        self.taps = self.ops.exact_vector(stored[:, 0])  # [channels, width]
        self.bias = taps.exact_vector("bias", (total,), part) if taps.has("bias") else None
        self.output = RowLinear(weights.at("out_proj"), total, size, span)

    def __call__(self, x: Rows, batch: LayerInputs) -> Rows:
        """Map `x`, [T, hidden], to the layer's update."""
        states, segments, _ = batch.of_layer(self.layer)
        value = self.ops.multiply(self.before(x, batch.adapted), self.value(x, batch.adapted))  # [T, channels]
        mixed = self.ops.causal_convolution(value, self.taps, self.bias, None, states, segments)  # [T, channels]
        mixed = self.ops.multiply(self.after(x, batch.adapted), mixed)  # [T, channels]
        return self.output(mixed, batch.adapted)  # [T, hidden]
