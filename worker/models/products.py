"""A decoder's products: the layers of each, by the names that checkpoints give them, and the number of its weights.

Layers of one input are computed as one product, so they share a number format. Reads no weights and imports no torch:
what a model will take, and which layers `quantization` means, is known before anything is read.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.options.quantization import Kinds, kinds_of_layers
from .config import ModelConfig
from .latent_config import LatentConfig
from .mixtures import ExpertsConfig

HEAD = "lm_head"


class Product(NamedTuple):
    layers: tuple[str, ...]
    num_weights: int  # of all ranks together
    is_of_experts: bool = False


def products(config: ModelConfig, ranks: int = 1) -> Iterator[Product]:
    """All of them, the head last."""
    attention = _attention(config, ranks) if config.latent is None else _latent_attention(config, config.latent, ranks)
    for layer in range(config.num_layers):
        for names, num_weights in attention.items():
            yield Product(tuple(f"model.layers.{layer}.self_attn.{name}" for name in names), num_weights)
        if config.experts is not None and config.experts.is_sparse[layer]:
            yield from _experts(f"model.layers.{layer}", config.experts, config.hidden_size)
        else:
            yield from _mlp(f"model.layers.{layer}.mlp", config.hidden_size, config.intermediate_size)
    yield Product((HEAD,), config.vocab_size * config.hidden_size)


def _mlp(name: str, hidden_size: int, width: int) -> Iterator[Product]:
    yield Product((f"{name}.gate_proj", f"{name}.up_proj"), 2 * hidden_size * width)
    yield Product((f"{name}.down_proj",), hidden_size * width)


def _experts(layer: str, experts: ExpertsConfig, hidden_size: int) -> Iterator[Product]:
    """The experts of a layer are one product, of which each token takes a part. Routers are never quantized."""
    block, names = f"{layer}.{experts.names.block}", experts.names
    gate, up, down = names.gate_up_down
    each = [f"{block}.{names.experts}.{number}" for number in range(experts.num_experts)]
    num_weights = experts.num_experts * hidden_size * experts.width
    yield Product(tuple(f"{name}.{part}" for name in each for part in (gate, up)), 2 * num_weights, True)
    yield Product(tuple(f"{name}.{down}" for name in each), num_weights, True)
    if experts.shared_width:
        yield from _mlp(f"{block}.{names.shared}", hidden_size, experts.shared_width)


def _attention(config: ModelConfig, ranks: int) -> dict[tuple[str, ...], int]:
    """Of one layer: the projections of each product, and its weights."""
    # Ranks that share a head of keys and values have a copy each.
    heads = config.num_heads + max(config.num_kv_heads, ranks) * 2
    a_head = config.head_dim * config.hidden_size
    return {("q_proj", "k_proj", "v_proj"): heads * a_head, ("o_proj",): config.num_heads * a_head}


def _latent_attention(config: ModelConfig, latent: LatentConfig, ranks: int) -> dict[tuple[str, ...], int]:
    """The same. What the heads share, every rank has."""
    queries, inputs = config.num_heads * latent.query_dim, latent.query_rank or config.hidden_size
    found: dict[tuple[str, ...], int] = {("q_proj" if latent.query_rank is None else "q_b_proj",): queries * inputs}
    if latent.query_rank is not None:
        found["q_a_proj",] = ranks * latent.query_rank * config.hidden_size
    return found | {
        ("kv_a_proj_with_mqa",): ranks * latent.width * config.hidden_size,
        ("kv_b_proj",): config.num_heads * (latent.nope_dim + latent.value_dim) * latent.rank,
        ("o_proj",): config.num_heads * latent.value_dim * config.hidden_size,
    }


def expert_layers(config: ModelConfig) -> Iterator[str]:
    """The names of all projections of experts."""
    for product in products(config):
        if product.is_of_experts:
            yield from product.layers


def quantized_kinds(config: ModelConfig, quantization: str | None) -> Kinds:
    """What the option means for each layer; raises where layers of one product are given different kinds."""
    found = [product.layers for product in products(config)]
    kinds = kinds_of_layers(quantization, [layer for layers in found for layer in layers])
    for layers in found:
        if len({kinds[layer] for layer in layers}) > 1:
            first, other = layers[0], next(layer for layer in layers if kinds[layer] != kinds[layers[0]])
            raise ConfigError(
                f"quantization: it gives {first} {kinds[first]} and {other} {kinds[other]}, and these are computed as "
                "one product. Give them the same."
            )
    return kinds
