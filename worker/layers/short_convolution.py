"""A short convolution in the place of attention: each channel's last few tokens, between two gates.

    before, after, value = in_proj(x)
    output               = out_proj(after × convolution(before × value))

Ranks share the channels. What is kept of a sequence is the convolution's last inputs, in float32.
"""

from typing import Any

from ..description.config import ModelConfig
from ..description.parts.mixers import ShortConvolution
from ..steps.batch import LayerInputs
from ..weights.weights import Weights
from .linear import MergedLinear, RowLinear


class ConvolutionLayer:
    """One layer's convolution, of the channels of this rank."""

    def __init__(self, weights: Weights, config: ModelConfig, convolution: ShortConvolution, layer: int) -> None:
        self.layer = layer
        self.ops = weights.placement.ops
        total, size = convolution.channels, config.hidden_size
        first, last = span = weights.placement.ranks.span(total)
        # One projection in the checkpoint, and a product for each third of it.
        self.before, self.after, self.value = (
            MergedLinear(weights, ["in_proj"], size, [(3 * total, third * total + first, third * total + last)])
            for third in range(3)
        )
        taps, part = weights.at("conv"), (0, first, last)
        self.taps = taps.exact_vector("weight", (total, 1, convolution.conv_width), part).view(last - first, -1)
        self.bias = taps.exact_vector("bias", (total,), part) if taps.has("bias") else None
        self.output = RowLinear(weights.at("out_proj"), total, size, span)

    def __call__(self, x: Any, batch: LayerInputs) -> Any:
        """`x` and what comes back are [T, hidden]; channels are those of this rank."""
        states, segments, _ = batch.of_layer(self.layer)
        value = self.ops.multiply(self.before(x, batch.adapted), self.value(x, batch.adapted))  # [T, channels]
        mixed = self.ops.causal_convolution(value, self.taps, self.bias, None, states, segments)  # [T, channels]
        mixed = self.ops.multiply(self.after(x, batch.adapted), mixed)  # [T, channels]
        return self.output(mixed, batch.adapted)  # [T, hidden]
