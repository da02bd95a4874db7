"""An EAGLE-3 head: drafts from the streams that enter some of the model's layers.

    hidden = fc(streams of a token side by side)              for tokens that the model has computed
    hidden = its own output before, or after, its norm        for the tokens that it drafted itself
    x      = [norm(embedding of the next token), norm(hidden)]
    stream = hidden + attention(x); stream + MLP(norm(stream)); likewise further layers, which read the stream alone
    logits = head(norm(stream))

Products of two things side by side are the sums of two products.
"""

from collections.abc import Sequence
from typing import Any

from ...kernels.operations import StepField
from ..description.config import ModelConfig
from ..description.eagle_heads import EagleForm
from ..description.families.family import QKV
from ..description.parts.heads import LayerHeads
from ..steps.batch import LayerInputs
from ..weights.piece import CheckpointPiece
from ..weights.weights import Rows, Weights
from .attention import ProjectedAttention
from .decoder import Decoder, DecoderLayer
from .embedding import Embedding, Head
from .linear import Linear, RowLinear
from .mlp import MLP
from .norm import Norm
from .rope import Ropes


class WatchedLayer:
    """A layer of the model together with a copy of the stream that enters it."""

    def __init__(self, decoder: Decoder, number: int) -> None:
        self.ops = decoder.ops
        self.layer = decoder.layers[number]
        self.mlp = self.layer.mlp
        self.update_scale = decoder.update_scale
        self.entering: Rows  # [T, hidden], of the latest step or record

    def __call__(self, stream: Rows, update: Rows | None, batch: LayerInputs) -> Rows | None:
        # A copy of its own: neither the stream nor the layer's calls differ from a model's without heads.
        if update is None:
            self.entering = self.ops.added(stream, stream, 0.0)
        else:
            self.entering = self.ops.added(stream, update, self.update_scale)
        following: Rows | None = self.layer(stream, update, batch)
        return following


class JoinedProjection:
    """Queries, keys and values of two inputs side by side."""

    def __init__(self, weights: Weights, config: ModelConfig, heads: LayerHeads) -> None:
        self.ops, hidden = weights.ops, config.hidden_size
        self.local_heads, self.local_kv_heads = config.num_heads, heads.num_kv_heads
        sizes = [count * heads.head_dim for count in (config.num_heads, heads.num_kv_heads, heads.num_kv_heads)]
        biases = [
            weights.read(f"{name}.bias", (size,))
            for name, size in zip(QKV, sizes, strict=True)
            if weights.has(f"{name}.bias")
        ]
        self.halves = []
        for first in (0, hidden):
            part = (1, first, first + hidden)
            pieces = [
                CheckpointPiece(f"{name}.weight", (size, 2 * hidden), part)
                for name, size in zip(QKV, sizes, strict=True)
            ]
            self.halves.append(Linear(weights.packed(pieces), [] if first else biases, weights))

    def of(self, embedding: Rows, hidden: Rows) -> Rows:
        of_embedding, of_hidden = self.halves
        return self.ops.add(of_embedding(embedding), of_hidden(hidden))  # [T, (heads + 2 × kv_heads) × head_dim]


class JoinedAttention(ProjectedAttention):
    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        self.joined = JoinedProjection(weights, config, config.heads[layer])
        super().__init__(weights, config, layer, self.joined)

    def of_both(self, embedding: Rows, hidden: Rows, batch: LayerInputs) -> Rows:
        return self.attend(self.joined.of(embedding, hidden), batch)


class FirstLayer:
    """The layer that reads an embedding and a hidden state."""

    def __init__(self, weights: Weights, config: ModelConfig, *, keeps_normed: bool) -> None:
        self.embedding_norm = _norm(weights.at("input_layernorm"), config)
        self.hidden_norm = _norm(weights.at("hidden_norm"), config)
        self.attention = JoinedAttention(weights.at("self_attn"), config, 0)
        self.before_mlp = _norm(weights.at("post_attention_layernorm"), config)
        self.mlp = MLP(weights.at("mlp"), config.hidden_size, config.mlp_width(0), config.activation)
        self.keeps_normed = keeps_normed

    def __call__(self, hidden: Rows, embedding: Rows, batch: LayerInputs) -> tuple[Rows, Rows]:
        """Return the stream and this layer's last update."""
        normed = self.hidden_norm(hidden)
        update = self.attention.of_both(self.embedding_norm(embedding), normed, batch)
        stream = normed if self.keeps_normed else hidden
        return stream, self.mlp(self.before_mlp(stream, update))


class Fusion:
    """fc, with a norm before it of all streams together, one of each stream, or none."""

    def __init__(self, weights: Weights, config: ModelConfig, num_streams: int, stream_size: int) -> None:
        self.ops, width = weights.ops, num_streams * stream_size
        is_by_stream = weights.has("fc_norm.0.weight")
        self.size = stream_size if is_by_stream else width
        spans = [(first, first + self.size) for first in range(0, width, self.size)]
        self.products = [RowLinear(weights.at("fc"), width, config.hidden_size, span) for span in spans]
        names = [f"fc_norm.{number}" for number in range(len(spans))] if is_by_stream else ["input_norm"]
        self.norms = [
            _norm(weights.at(name), config, self.size) if weights.has(f"{name}.weight") else None for name in names
        ]

    def __call__(self, streams: StepField) -> Rows:
        total = self._product(streams, 0)
        for part in range(1, len(self.products)):
            total = self.ops.add(total, self._product(streams, part))
        return total  # [T, hidden]

    def _product(self, streams: StepField, part: int) -> Rows:
        rows, norm = self.ops.placed_rows(streams, self.size, part), self.norms[part]
        return self.products[part](rows if norm is None else norm(rows))


class EagleParts:
    """The weights of a head, and what it shares with the model."""

    def __init__(self, weights: Weights, form: EagleForm, model: Decoder, num_logits: int) -> None:
        """`num_logits`: the tokens that its own output head has."""
        config = form.config
        is_tied = config.tie_word_embeddings and not weights.has("lm_head.weight")
        self.form, self.placement, self.ops = form, weights.placement, weights.ops
        self.embedding = model.embedding
        if weights.has("embed_tokens.weight"):
            sizes = config.vocab_size, config.hidden_size
            self.embedding = Embedding(weights.at("embed_tokens"), *sizes, is_tied, 1.0, False)
        self.fusion = Fusion(weights, config, len(form.reads), model.hidden_size)
        self.first = FirstLayer(weights.at("layers").at(0), config, keeps_normed=form.keeps_normed)
        layers = weights.at("layers")
        self.further = [DecoderLayer(layers.at(number), config, number) for number in range(1, config.num_layers)]
        self.norm = _norm(weights.at("norm"), config)
        self.head = model.head
        if is_tied or weights.has("lm_head.weight"):
            tied = self.embedding if is_tied else None
            self.head = Head(weights.at("lm_head"), num_logits, config.hidden_size, tied, None)
        self.ropes = Ropes(config.ropes, config.rotates_pairs)


class EagleHead:
    """Stands for a decoder: its batches have rows in `placed`, one for each token."""

    def __init__(self, parts: EagleParts, *, reads_model: bool) -> None:
        """`reads_model`: the model's streams, not its own output."""
        self.parts, self.reads_model = parts, reads_model
        self.ops, self.ropes, self.placement = parts.ops, parts.ropes, parts.placement
        self.layers: Sequence[Any] = (parts.first, *parts.further)

    def stream(self, batch: LayerInputs) -> Rows:
        """Return the stream after the last layer, [T, hidden], for `logits`."""
        parts = self.parts
        stream, update = parts.first(self._hidden(batch), parts.embedding(batch.token_ids), batch)
        for layer in parts.further:
            update = layer(stream, update, batch)
        return self.ops.add(stream, update)  # [T, hidden]

    def logits(self, hidden: Rows, rows: StepField) -> Rows:
        """Return float32 logits of these rows, [S, the head's own vocabulary]."""
        return self.parts.head(self.parts.norm(self.ops.gather_rows(hidden, rows)))

    def _hidden(self, batch: LayerInputs) -> Rows:
        if self.reads_model:
            return self.parts.fusion(batch.placed)
        hidden = self.ops.placed_rows(batch.placed, self.parts.form.config.hidden_size)
        return self.parts.norm(hidden) if self.parts.form.feeds_normed else hidden


def _norm(weights: Weights, config: ModelConfig, size: int | None = None) -> Norm:
    return Norm(weights, size or config.hidden_size, config.rms_norm_eps, config.family.norm)
