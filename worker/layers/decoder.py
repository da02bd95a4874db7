"""The decoder of most families, dense or with sparse layers, built from a config's description."""

from collections.abc import Callable
from typing import Any

from ...kernels.operations import StepField
from ..description.config import ModelConfig
from ..description.parts.latent import LatentConfig
from ..description.parts.mixers import DeltaNet, ShortConvolution
from ..steps.batch import LayerInputs
from ..weights.weights import Rows, Weights
from .attention import Attention
from .embedding import Embedding, Head, TokenInputLayer, TokenInputTable
from .experts import Experts, ExpertsBesideMLP, ExpertsByKind
from .latent_attention import LatentAttention
from .mixers import ConvolutionLayer, GatedDeltaNet
from .mlp import MLP
from .norm import Norm, PlainStream
from .rope import Ropes

# The stream, and the last layer's update, which the next one adds to it first.
BetweenLayers = tuple[Rows, Rows | None]


class DecoderLayer:
    """Attention and MLP (or experts), with norms before or after them, each added to the stream."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        names = config.norm_places
        before = None if names.skips_first and layer == 0 else names.before_attention
        self.before_attention = _norm_before(weights, before, config)
        self.attention = _mixer(weights, config, layer)
        self.after_attention = _norm_behind(weights, names.after_attention, config)
        self.before_mlp = _norm_before(weights, names.before_mlp, config)
        self.mlp = _mlp(weights, config, layer)
        self.after_mlp = _norm_behind(weights, names.after_mlp, config)

    def __call__(self, stream: Rows, update: Rows | None, batch: LayerInputs) -> Rows:
        """Add the last layer's update to the stream; return this layer's."""
        update = self.attention(self.before_attention(stream, update), batch)  # [T, hidden], as the stream
        update = self.after_attention(update)
        update = self.of_mlp(self.before_mlp(stream, update), batch)  # [T, hidden]
        return self.after_mlp(update)

    def of_mlp(self, x: Rows, batch: LayerInputs) -> Rows:
        return self.mlp(x, batch.adapted)


class KindsLayer(DecoderLayer):
    """A layer with separate experts for text and media tokens, if it has any."""

    mlp: MLP | ExpertsByKind

    def of_mlp(self, x: Rows, batch: LayerInputs) -> Rows:
        if isinstance(self.mlp, ExpertsByKind):
            return self.mlp.of_kinds(x, batch.token_kinds, batch.adapted)
        return super().of_mlp(x, batch)


class ScaledLayer(DecoderLayer):
    """A layer that also adds its own token embedding to the stream, then multiplies it by a stored factor."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        super().__init__(weights, config, layer)
        self.ops = weights.ops
        self.own_input: TokenInputLayer | None = None
        if (inputs := config.token_inputs) is not None:
            self.own_input = TokenInputLayer(weights, inputs, layer, config.hidden_size, config.activation)
            self.after_input = _norm_behind(weights, "post_per_layer_input_norm", config)
        self.factor = float(weights.read("layer_scalar", (1,))[0])

    def __call__(  # type: ignore[override]  # returns no update
        self, stream: Rows, update: Rows | None, batch: LayerInputs
    ) -> None:
        """Add the last layer's update and this layer's to the stream."""
        update = super().__call__(stream, update, batch)
        if self.own_input is not None:
            self.ops.add(stream, update)
            update = self.after_input(self.own_input(stream, batch.token_inputs, batch.adapted))
        self.ops.add(stream, update, factor=self.factor)


class ParallelLayer:
    """Attention and MLP that read the same norm and are added to the stream together."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        self.ops = weights.ops
        self.before = _norm_before(weights, config.norm_places.before_attention, config)
        self.attention = Attention(weights.at("self_attn"), config, layer)
        self.mlp = dense_mlp(weights, config, layer)

    def __call__(self, stream: Rows, update: Rows | None, batch: LayerInputs) -> Rows:
        """Add the last layer's update to the stream; return this layer's."""
        normed = self.before(stream, update)
        share = self.attention.of_rank(normed, batch)
        # Add a rank's two parts first, so that one sum over the ranks is enough.
        return self.ops.all_reduce(self.ops.add(share, self.mlp.of_rank(normed, batch.adapted)))  # [T, hidden]


def _norm_before(weights: Weights, name: str | None, config: ModelConfig) -> Norm | PlainStream:
    scale = config.scales.update
    if name is None:
        return PlainStream(weights, scale)
    return Norm(weights.at(name), config.hidden_size, config.rms_norm_eps, config.family.norm, scale)


def _norm_behind(weights: Weights, name: str | None, config: ModelConfig) -> Callable[[Rows], Rows]:
    if name is None:
        return lambda update: update
    return Norm(weights.at(name), config.hidden_size, config.rms_norm_eps, config.family.norm)


def _mlp(weights: Weights, config: ModelConfig, layer: int) -> MLP | Experts:
    experts = config.experts
    if experts is None or not experts.is_sparse[layer]:
        return dense_mlp(weights, config, layer)
    if (norms := experts.names.beside) is not None:
        return ExpertsBesideMLP(weights, config, experts, norms, dense_mlp(weights, config, layer))
    block = weights.at(experts.names.block)
    if experts.of_media is not None:
        return ExpertsByKind(block, config.hidden_size, experts, experts.of_media)
    return Experts(block, config.hidden_size, experts)


def dense_mlp(weights: Weights, config: ModelConfig, layer: int) -> MLP:
    family, names = config.family, config.family.names
    return MLP(
        weights.at(names.mlp),
        config.hidden_size,
        config.mlp_width(layer),
        config.activation,
        family.has_gate,
        names.gate_up_down,
    )


Mixer = Callable[[Rows, LayerInputs], Rows]
# By the type of a layer's mixer in the config: the mixer's name in the checkpoint, and its class.
_MIXERS: dict[type, tuple[str, Callable[[Weights, ModelConfig, Any, int], Mixer]]] = {
    type(None): ("self_attn", lambda weights, config, _, layer: Attention(weights, config, layer)),
    DeltaNet: ("linear_attn", GatedDeltaNet),
    ShortConvolution: ("conv", ConvolutionLayer),
    LatentConfig: ("self_attn", LatentAttention),
}


def _mixer(weights: Weights, config: ModelConfig, layer: int) -> Mixer:
    described = config.mixers[layer] or config.latent
    name, mixer = _MIXERS[type(described)]
    return mixer(weights.at(name), config, described, layer)


def _layer_class(config: ModelConfig) -> type[DecoderLayer | ParallelLayer | ScaledLayer]:
    if config.media_tokens:
        return KindsLayer
    if config.family.scales_layers:
        return ScaledLayer
    return ParallelLayer if config.norm_places.is_parallel else DecoderLayer


class Decoder:
    """Embedding, layers, norm and head."""

    def __init__(self, weights: Weights, config: ModelConfig, *, has_head: bool = True) -> None:
        """Without a head, its logits are the rows of the last norm."""
        inner, scales = weights.at("model"), config.scales
        is_tied = config.tie_word_embeddings
        self.placement, self.ops = weights.placement, weights.ops
        self.hidden_size = config.hidden_size
        self.embedding = Embedding(
            inner.at("embed_tokens"),
            config.vocab_size,
            config.hidden_size,
            is_tied,
            scales.embedding,
            scales.rounds_embedding,
        )
        self.ropes = Ropes(config.ropes, config.rotates_pairs)
        self.token_inputs: TokenInputTable | None = None
        if (inputs := config.token_inputs) is not None:
            sizes = config.num_layers, config.hidden_size
            self.token_inputs = TokenInputTable(inner, inputs, *sizes, config.rms_norm_eps)
        # Parts of media rows: one replaces an embedding, the others are added after the first layers.
        self.row_parts = 0 if config.vision is None else config.vision.row_parts
        layers = inner.at("layers")
        self.layers: list[Any] = [self._layer(layers.at(n), config, n) for n in range(config.num_layers)]
        self.norm = self._last_norm(inner, config)
        self.update_scale = scales.update
        tied = self.embedding if is_tied else None
        self.head: Callable[[Rows], Rows] = _plain
        if has_head:
            self.head = Head(weights.at("lm_head"), config.vocab_size, config.hidden_size, tied, scales.logit_cap)

    def _layer(self, weights: Weights, config: ModelConfig, layer: int) -> Any:
        return _layer_class(config)(weights, config, layer)

    def _last_norm(self, weights: Weights, config: ModelConfig) -> Norm | PlainStream:
        """Only the head reads this norm, and logits are proportional to it, so their factor is part of its weight."""
        name, shape = config.family.names.last_norm, (config.hidden_size, config.rms_norm_eps, config.family.norm)
        return Norm(weights.at(name), *shape, scale=config.scales.logits)

    def logits(self, hidden: Rows, rows: StepField) -> Rows:
        """Return float32 logits of these rows, [S, vocabulary] (or [S, hidden], without a head)."""
        # Rows of the stream, their norm [S, hidden], logits. No variable keeps a buffer alive beyond the next call.
        return self.head(self.norm(self.ops.gather_rows(hidden, rows)))

    def stream(self, batch: LayerInputs) -> Rows:
        """Return the stream after the last layer, [T, hidden], for `logits`."""
        between = self.begin(batch)
        for layer in range(len(self.layers)):
            between = self.through(layer, between, batch)
        stream, update = between
        return stream if update is None else self.ops.add(stream, update, self.update_scale)  # [T, hidden]

    def begin(self, batch: LayerInputs) -> BetweenLayers:
        """Return what the first layer gets."""
        stream, ops = self.embedding(batch.token_ids), self.ops  # [T, hidden]
        if self.row_parts:
            stream = ops.put_rows(stream, batch.placed)
        if self.token_inputs is not None:
            # [T, layers × width]
            batch.token_inputs = self.token_inputs(batch.token_ids, stream, batch.adapted)
        return stream, None

    def through(self, layer: int, between: BetweenLayers, batch: LayerInputs) -> BetweenLayers:
        """Return what the layer after this one gets."""
        stream, update = between
        update = self.layers[layer](stream, update, batch)  # [T, hidden]
        if layer + 1 < self.row_parts:
            stream = self.ops.add_rows(stream, batch.placed, layer + 1)
        return stream, update


def _plain(rows: Rows) -> Rows:
    return rows


class LayeredStream:
    """The stream of a chunk that is computed a few layers at a time, kept between them."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._between: BetweenLayers | None = None

    def compute(self, batch: LayerInputs, first: int, end: int) -> None:
        """Compute these layers, which follow those before; the first one begins another chunk."""
        between = self._decoder.begin(batch) if first == 0 else self._between
        self._between = None
        for layer in range(first, end):
            between = self._decoder.through(layer, between, batch)  # type: ignore[arg-type]
        self._between = between if end < len(self._decoder.layers) else None
