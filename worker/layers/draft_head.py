"""A model's own head for a further token (MTP): from a token's hidden state and the next token to the token after.

    x      = projection([norm(embedding of the next token), norm(hidden state)])
    logits = head(norm(layer(x)))

Embedding and output head are the model's. For one more token the head reads its own output in place of the model's.
"""

from ...kernels.operations import StepField
from ..description.config import ModelConfig
from ..description.draft_heads import HeadForm
from ..steps.batch import LayerInputs
from ..weights.weights import Rows, Weights
from .decoder import Decoder, DecoderLayer
from .linear import RowLinear
from .norm import Norm, PlainStream
from .rope import Ropes


class HeadParts:
    """The weights of a head, and what it shares with the model."""

    def __init__(self, weights: Weights, config: ModelConfig, form: HeadForm, model: Decoder) -> None:
        """`weights`: of the whole checkpoint; `config`: of the head's layer."""
        own, hidden = weights.at(form.prefix.removesuffix(".")), config.hidden_size

        def norm(name: str) -> Norm:
            return Norm(own.at(name), hidden, config.rms_norm_eps, config.family.norm)

        self.model = model
        self.placement = weights.placement
        self.embedding_norm, self.hidden_norm = norm(form.embedding_norm), norm(form.hidden_norm)
        self.norm = model.norm if form.norm is None else norm(form.norm)
        # The product of both side by side is the sum of two products.
        self.of_embedding, self.of_hidden = (
            RowLinear(own.at(form.projection), 2 * hidden, hidden, span) for span in ((0, hidden), (hidden, 2 * hidden))
        )
        layer = own if not form.layer else own.at(form.layer.removesuffix("."))
        self.layer = DecoderLayer(layer, config, 0)
        self.ropes = Ropes(config.ropes, config.rotates_pairs)


class DraftHead:
    """Stands for a decoder: its batches have hidden states in `placed`, one for each token."""

    def __init__(self, parts: HeadParts, norm_of_input: Norm | PlainStream | None) -> None:
        """`norm_of_input`: that the hidden states still lack."""
        self.parts = parts
        self.norm_of_input = norm_of_input
        self.ops = parts.model.ops
        self.ropes = parts.ropes
        self.layers = [parts.layer]
        self.placement = parts.placement

    def stream(self, batch: LayerInputs) -> Rows:
        """Return the stream after the layer, [T, hidden], for `logits`."""
        parts, ops = self.parts, self.ops
        hidden = ops.placed_rows(batch.placed, parts.model.hidden_size)  # [T, hidden]
        if self.norm_of_input is not None:
            hidden = self.norm_of_input(hidden)
        stream = parts.of_hidden(parts.hidden_norm(hidden))
        embedding = parts.embedding_norm(parts.model.embedding(batch.token_ids))
        stream = ops.add(stream, parts.of_embedding(embedding))
        update = parts.layer(stream, None, batch)
        return ops.add(stream, update)  # [T, hidden]

    def logits(self, hidden: Rows, rows: StepField) -> Rows:
        """Return float32 logits of these rows, [S, vocabulary]."""
        return self.parts.model.head(self.parts.norm(self.ops.gather_rows(hidden, rows)))
