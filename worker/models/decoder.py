"""A decoder, dense or with sparse layers, as a config describes it: what most families are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..layers.attention import Attention
from ..layers.experts import Experts
from ..layers.latent_attention import LatentAttention
from ..layers.linear import Embedding, Head
from ..layers.mlp import MLP
from ..layers.rope import Ropes
from ..steps.batch import Batch, LayerInputs
from ..weights.weights import Weights
from .config import ModelConfig
from .latent_config import LatentConfig


class RMSNorm:
    """x / sqrt(mean(x²) + ε) × weight, of the stream after what the last sublayer adds to it."""

    def __init__(self, weights: Weights, size: int, epsilon: float) -> None:
        self.ops = weights.placement.ops
        self.weight = weights.vector("weight", (size,))  # [hidden]
        self.epsilon = epsilon

    def __call__(self, stream: Any, update: Any | None = None) -> Any:
        return self.ops.add_rms_norm(stream, update, self.weight, self.epsilon)  # [T, hidden]


class DecoderLayer:
    """Attention and MLP, or experts, each behind a norm and added to the stream."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        self.attention_norm = RMSNorm(weights.at("input_layernorm"), config.hidden_size, config.rms_norm_eps)
        self.attention = _mixer(weights, config, layer)
        self.mlp_norm = RMSNorm(weights.at("post_attention_layernorm"), config.hidden_size, config.rms_norm_eps)
        self.mlp: MLP | Experts
        if config.experts is not None and config.experts.is_sparse[layer]:
            self.mlp = Experts(weights.at(config.experts.names.block), config.hidden_size, config.experts)
        else:
            self.mlp = MLP(weights.at("mlp"), config.hidden_size, config.intermediate_size)

    def __call__(self, stream: Any, update: Any | None, batch: LayerInputs) -> Any:
        """Adds the last layer's update to the stream; gives this layer's."""
        update = self.attention(self.attention_norm(stream, update), batch)  # [T, hidden], as the stream
        return self.mlp(self.mlp_norm(stream, update), batch.adapted)  # [T, hidden]


# What mixes the tokens of a layer: by the type of what the config says of it, its name in the checkpoint and itself.
_MIXERS: dict[type, tuple[str, Callable[[Weights, ModelConfig, Any, int], Any]]] = {
    type(None): ("self_attn", lambda weights, config, _, layer: Attention(weights, config, layer)),
    LatentConfig: ("self_attn", LatentAttention),
}


def _mixer(weights: Weights, config: ModelConfig, layer: int) -> Any:
    described = config.mixers[layer] or config.latent
    name, mixer = _MIXERS[type(described)]
    return mixer(weights.at(name), config, described, layer)


class Decoder:
    """Embedding, layers, norm and head."""

    def __init__(self, weights: Weights, config: ModelConfig) -> None:
        inner = weights.at("model")
        is_tied = config.tie_word_embeddings
        self.placement = weights.placement
        self.hidden_size = config.hidden_size
        self.embedding = Embedding(inner.at("embed_tokens"), config.vocab_size, config.hidden_size, is_tied)
        self.ropes = Ropes(config.ropes, config.rotates_pairs, self.placement.device)
        self.layers = [DecoderLayer(inner.at("layers").at(n), config, n) for n in range(config.num_layers)]
        self.norm = RMSNorm(inner.at("norm"), config.hidden_size, config.rms_norm_eps)
        tied = self.embedding if is_tied else None
        self.head = Head(weights.at("lm_head"), config.vocab_size, config.hidden_size, tied)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """[T, hidden]: the stream behind the last layer, for `logits`."""
        batch.rotations_by_layer = self.ropes.at(batch.rotations, batch.rotations_end, self.placement.activations)
        return self.stream(batch)

    @torch.inference_mode()
    def logits(self, hidden: Any, rows: Any) -> Any:
        """[S, vocabulary] in float32, of these rows."""
        # Rows of the stream, their norm [S, hidden], logits. No name holds a buffer longer than the next call.
        return self.head(self.norm(self.placement.ops.gather_rows(hidden, rows)))

    def stream(self, batch: LayerInputs) -> Any:
        stream, update = self.embedding(batch.token_ids), None  # [T, hidden]
        for layer in self.layers:
            update = layer(stream, update, batch)  # [T, hidden]
        return self.placement.ops.add(stream, update)  # [T, hidden]
