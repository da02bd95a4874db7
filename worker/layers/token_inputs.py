"""Embeddings of the tokens that layers have each for themselves (Gemma's per-layer embeddings).

One table and one product of the first embedding make those of all layers at once, side by side. A layer uses its part
as the other half of a gated MLP: the gate comes from the stream. Every rank has, and computes, all of it.
"""

import math
from typing import Any

from ..description.parts.activations import Activation
from ..description.parts.stored_names import TOKEN_INPUT_PARTS, TOKEN_INPUT_PROJECTION
from ..description.parts.token_inputs import TokenInputs
from ..weights.piece import CheckpointPiece
from ..weights.weights import Weights
from .linear import MergedLinear
from .norm import norm_vector

_HALF = 1 / math.sqrt(2)  # of what comes from the table, and of what comes from the embedding: their sum is as large


class TokenInputTable:
    """[T, layers × width]: (scale × table[token] + norm(embedding × W / √hidden)) / √2, the norm layer by layer."""

    def __init__(
        self, weights: Weights, inputs: TokenInputs, num_layers: int, hidden_size: int, epsilon: float
    ) -> None:
        placement, width = weights.placement, num_layers * inputs.width
        self.ops = placement.ops
        self.scale = inputs.scale * _HALF
        table = weights.at("embed_tokens_per_layer")
        piece = CheckpointPiece("weight", (inputs.vocab_size, width), (0, 0, inputs.vocab_size))
        self.table = table.table(piece, placement.formats.own)
        self.projection = MergedLinear(weights, [TOKEN_INPUT_PROJECTION], hidden_size, [(width, 0, width)])
        # norm(x / √hidden) with ε is norm(x) with hidden × ε.
        self.epsilon = epsilon * hidden_size
        self.norm = norm_vector(weights.at("per_layer_projection_norm"), "weight", (inputs.width,), False, _HALF)

    def __call__(self, token_ids: Any, embedding: Any, adapted: Any | None) -> Any:
        total = self.ops.embedding(token_ids, self.table, 0, self.scale)  # [T, layers × width]
        return self.ops.add_part_norms(total, self.projection(embedding, adapted), self.norm, self.epsilon)


class TokenInputLayer:
    """projection(activation(gate(stream)) × the layer's part of the inputs)."""

    def __init__(
        self, weights: Weights, inputs: TokenInputs, layer: int, hidden_size: int, activation: Activation
    ) -> None:
        gate, projection = TOKEN_INPUT_PARTS
        self.ops = weights.placement.ops
        self.layer, self.activation = layer, activation
        self.gate = MergedLinear(weights, [gate], hidden_size, [(inputs.width, 0, inputs.width)])
        self.projection = MergedLinear(weights, [projection], inputs.width, [(hidden_size, 0, hidden_size)])

    def __call__(self, stream: Any, token_inputs: Any, adapted: Any | None) -> Any:
        gate = self.ops.apply_activation(self.gate(stream, adapted), self.activation)  # [T, width]
        return self.projection(self.ops.multiply(gate, token_inputs, self.layer), adapted)  # [T, hidden]
