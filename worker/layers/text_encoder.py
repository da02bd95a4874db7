"""The parts of text encoders that `decoder.py` puts in the places of its own: what is added to embeddings, and layers
with their norms behind.
"""

from typing import Any

import numpy

from ...kernels.arrays import FLOAT32
from ..description.config import ModelConfig
from ..description.parts.text_embedding import TextEmbedding
from ..steps.batch import LayerInputs
from ..weights.weights import Rows, Weights
from .attention import Attention
from .embedding import Embedding
from .mlp import MLP
from .norm import Norm


class EncoderEmbedding:
    """norm(token + position + type)."""

    def __init__(self, weights: Weights, config: ModelConfig, form: TextEmbedding, tokens: Embedding) -> None:
        self.ops = weights.ops
        self.tokens = tokens
        self.form = form
        self.positions = None
        if form.num_positions:
            hidden, own = config.hidden_size, weights.placement.formats.own
            rows = weights.read("embed_positions.weight", (form.num_positions, hidden)).astype(FLOAT32)
            if form.num_types:  # a text alone has the first type throughout
                types = weights.read("embed_types.weight", (form.num_types, hidden))
                rows = rows + types[0].astype(FLOAT32)
            self.positions = self.ops.table(numpy.ascontiguousarray(rows), own)
        self.norm = Norm(weights.at("embed_norm"), config.hidden_size, config.rms_norm_eps, config.family.norm)

    def __call__(self, batch: Any) -> Rows:
        """`batch`: of a backend that computes encoders, whose batches have their tokens' positions."""
        stream = self.tokens(batch.token_ids)  # [T, hidden]
        if self.positions is None:
            return self.norm(stream)
        return self.norm(stream, self.ops.embedding(batch.positions, self.positions, -self.form.first_position, 1.0))


class PostNormLayer:
    """x = norm(x + attention(x)), then norm(x + MLP(x))."""

    def __init__(self, weights: Weights, config: ModelConfig, attention: Attention, mlp: MLP) -> None:
        places = config.norm_places
        shape = config.hidden_size, config.rms_norm_eps, config.family.norm
        self.attention, self.mlp = attention, mlp
        self.attention_norm = Norm(weights.at(str(places.after_attention)), *shape)
        self.mlp_norm = Norm(weights.at(str(places.after_mlp)), *shape)

    def __call__(self, stream: Rows, update: Rows | None, batch: LayerInputs) -> Rows:
        """Return the stream after the layer, which replaces the one before it."""
        stream = self.attention_norm(stream, self.attention(stream, batch))  # [T, hidden]
        return self.mlp_norm(stream, self.mlp(stream, batch.adapted))
