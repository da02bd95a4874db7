"""The embedding, from tokens to the stream, and the head, from the stream to logits.

Some models (Gemma's, with per-layer embeddings) also give each layer its own token embedding.
"""

import math

import numpy

from ...kernels import DTYPES
from ...kernels.operations import StepField
from ..description.parts.activations import Activation
from ..description.parts.stored_names import TOKEN_INPUT_PARTS, TOKEN_INPUT_PROJECTION
from ..description.parts.token_inputs import TokenInputs
from ..description.products import HEAD, TABLE
from ..weights.piece import CheckpointPiece
from ..weights.weights import Rows, Weights
from .linear import Linear, MergedLinear
from .norm import norm_vector

_HALF = 1 / math.sqrt(2)  # factor of both summands, so that the sum has the same variance


class Embedding:
    """The table of this rank's share of the vocabulary; the ranks' outputs are added up."""

    def __init__(
        self, weights: Weights, vocab_size: int, hidden_size: int, is_tied: bool, scale: float, rounds_scale: bool
    ) -> None:
        """`scale` multiplies the rows; `rounds_scale` rounds it to the model's number format."""
        placement = weights.placement
        self.ops = weights.ops
        own = DTYPES[placement.formats.own.kind]
        self.scale = float(numpy.float32(scale).astype(own)) if rounds_scale else scale
        self.first, last = placement.ranks.span(vocab_size)
        piece = CheckpointPiece("weight", (vocab_size, hidden_size), (0, self.first, last))
        # [vocabulary / ranks, hidden]. A tied table is also the head's matrix; an untied one keeps the model's format.
        self.table = weights.table(piece, placement.formats.of(HEAD if is_tied else TABLE))

    def __call__(self, token_ids: StepField) -> Rows:
        # [T, hidden], zeros for other ranks' tokens
        rows = self.ops.embedding(token_ids, self.table, self.first, self.scale)
        return self.ops.all_reduce(rows)  # [T, hidden]


class Head:
    """Logits over the whole vocabulary, gathered from the ranks' shares."""

    def __init__(
        self, weights: Weights, vocab_size: int, hidden_size: int, tied: Embedding | None, cap: float | None
    ) -> None:
        """With `tied` the head uses the embedding's table. `cap`: a logit x becomes cap × tanh(x / cap)."""
        placement = weights.placement
        self.vocab_size = vocab_size
        self.cap = cap
        first, last = placement.ranks.span(vocab_size)
        if tied:
            weight = weights.ops.tied_weight(tied.table, placement.formats.of(HEAD))
        else:
            piece = CheckpointPiece("weight", (vocab_size, hidden_size), (0, first, last))
            weight = weights.packed([piece])
        # A tied head may have one too, like ERNIE's with use_bias.
        biases = [weights.read("bias", (vocab_size,), (0, first, last))] if weights.has("bias") else []
        self.own = Linear(weight, biases, weights)

    def __call__(self, hidden: Rows) -> Rows:
        share = self.own(hidden)  # [S, vocabulary / ranks]
        if self.cap is not None:
            share = self.own.ops.cap(share, self.cap)
        return self.own.ops.all_gather(share, self.vocab_size)  # [S, vocabulary]


class TokenInputTable:
    """[T, layers × width]: (scale × table[token] + norm(embedding × W / √hidden)) / √2, the norm layer by layer.

    One table and one product with the first embedding make the inputs of all layers at once, side by side. Every rank
    computes all of it.
    """

    def __init__(
        self, weights: Weights, inputs: TokenInputs, num_layers: int, hidden_size: int, epsilon: float
    ) -> None:
        placement, width = weights.placement, num_layers * inputs.width
        self.ops = weights.ops
        self.scale = inputs.scale * _HALF
        table = weights.at("embed_tokens_per_layer")
        piece = CheckpointPiece("weight", (inputs.vocab_size, width), (0, 0, inputs.vocab_size))
        self.table = table.table(piece, placement.formats.own)
        self.projection = MergedLinear(weights, [TOKEN_INPUT_PROJECTION], hidden_size, [(width, 0, width)])
        # norm(x / √hidden) with ε is norm(x) with hidden × ε.
        self.epsilon = epsilon * hidden_size
        self.norm = norm_vector(weights.at("per_layer_projection_norm"), "weight", (inputs.width,), False, _HALF)

    def __call__(self, token_ids: StepField, embedding: Rows, adapted: StepField | None) -> Rows:
        total = self.ops.embedding(token_ids, self.table, 0, self.scale)  # [T, layers × width]
        return self.ops.add_part_norms(total, self.projection(embedding, adapted), self.norm, self.epsilon)


class TokenInputLayer:
    """projection(activation(gate(stream)) × the layer's part of the inputs): the other half of a gated MLP."""

    def __init__(
        self, weights: Weights, inputs: TokenInputs, layer: int, hidden_size: int, activation: Activation
    ) -> None:
        gate, projection = TOKEN_INPUT_PARTS
        self.ops = weights.ops
        self.layer, self.activation = layer, activation
        self.gate = MergedLinear(weights, [gate], hidden_size, [(inputs.width, 0, inputs.width)])
        self.projection = MergedLinear(weights, [projection], inputs.width, [(hidden_size, 0, hidden_size)])

    def __call__(self, stream: Rows, token_inputs: Rows, adapted: StepField | None) -> Rows:
        gate = self.ops.apply_activation(self.gate(stream, adapted), self.activation)  # [T, width]
        return self.projection(self.ops.multiply(gate, token_inputs, self.layer), adapted)  # [T, hidden]
