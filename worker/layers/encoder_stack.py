"""Encoders of texts as `load.py` builds them: a decoder's layers behind an embedding of tokens, positions and types.

Some have their norms behind the parts of a layer: such a layer returns the stream instead of an update of it.
"""

from typing import Any

import numpy

from ...kernels.arrays import FLOAT32
from ..description.config import ModelConfig
from ..description.parts.text_embedding import TextEmbedding
from ..steps.batch import LayerInputs
from ..weights.weights import Rows, Table, Weights
from .attention import Attention
from .decoder import BetweenLayers, Decoder, dense_mlp
from .embedding import Embedding
from .norm import Norm, PlainStream


class EncoderEmbedding:
    """norm(token + position + type)."""

    def __init__(self, weights: Weights, config: ModelConfig, form: TextEmbedding, tokens: Embedding) -> None:
        self.ops = weights.ops
        self.tokens = tokens
        self.form = form
        self.positions = self._positions(weights, config, form) if form.num_positions else None
        self.norm = Norm(weights.at("embed_norm"), config.hidden_size, config.rms_norm_eps, config.family.norm)

    def __call__(self, batch: Any) -> Rows:
        """`batch`: of a backend that computes encoders, whose batches have the rows of their tokens' positions."""
        stream = self.tokens(batch.token_ids)  # [T, hidden]
        if self.positions is None:
            return self.norm(stream)
        return self.norm(stream, self.ops.embedding(batch.learned_rows, self.positions, -self.form.first_position, 1.0))

    def _positions(self, weights: Weights, config: ModelConfig, form: TextEmbedding) -> Table:
        """A table of positions for each type of text, one behind the other: the sums of both."""
        hidden = config.hidden_size
        rows = weights.read("embed_positions.weight", (form.num_positions, hidden)).astype(FLOAT32)
        if form.num_types:
            types = weights.read("embed_types.weight", (form.num_types, hidden)).astype(FLOAT32)
            rows = (types[:, None] + rows).reshape(-1, hidden)
        return self.ops.table(numpy.ascontiguousarray(rows), weights.placement.formats.own)


class PostNormLayer:
    """x = norm(x + attention(x)), then norm(x + MLP(x))."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        places = config.norm_places
        shape = config.hidden_size, config.rms_norm_eps, config.family.norm
        self.attention = Attention(weights.at("self_attn"), config, layer)
        self.mlp = dense_mlp(weights, config, layer)
        self.attention_norm = Norm(weights.at(str(places.after_attention)), *shape)
        self.mlp_norm = Norm(weights.at(str(places.after_mlp)), *shape)

    def __call__(self, stream: Rows, batch: LayerInputs) -> Rows:
        stream = self.attention_norm(stream, self.attention(stream, batch))  # [T, hidden]
        return self.mlp_norm(stream, self.mlp(stream, batch.adapted))


class EncoderStack(Decoder):
    """Layers with norms before their parts."""

    def __init__(self, weights: Weights, config: ModelConfig, form: TextEmbedding) -> None:
        super().__init__(weights, config, has_head=False)
        self.encoder_embedding = EncoderEmbedding(weights.at("model"), config, form, self.embedding)

    def begin(self, batch: LayerInputs) -> BetweenLayers:
        return self.encoder_embedding(batch), None


class PostNormStack(EncoderStack):
    """Layers with norms behind their parts; the last one has normed what a head reads."""

    def _layer(self, weights: Weights, config: ModelConfig, layer: int) -> PostNormLayer:
        return PostNormLayer(weights, config, layer)

    def _last_norm(self, weights: Weights, config: ModelConfig) -> Norm | PlainStream:
        return PlainStream(weights, 1.0)

    def through(self, layer: int, between: BetweenLayers, batch: LayerInputs) -> BetweenLayers:
        return self.layers[layer](between[0], batch), None


def encoder_stack(weights: Weights, config: ModelConfig, form: TextEmbedding) -> EncoderStack:
    return (PostNormStack if config.norm_places.is_behind else EncoderStack)(weights, config, form)
