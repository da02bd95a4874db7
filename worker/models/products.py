"""A decoder's products: the layers of each, by the names that checkpoints give them, and the number of its weights.

Layers of one input are computed as one product, so they share a number format. Reads no weights and imports no torch:
what a model will take, and which layers `quantization` means, is known before anything is read.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.options.quantization import Kinds, kinds_of_layers
from .config import ModelConfig

HEAD = "lm_head"


class Product(NamedTuple):
    layers: tuple[str, ...]
    num_weights: int  # of all ranks together


def products(config: ModelConfig, ranks: int = 1) -> Iterator[Product]:
    """All of them, the head last."""
    # Ranks that share a head of keys and values have a copy each.
    heads = config.num_heads + max(config.num_kv_heads, ranks) * 2
    for layer in range(config.num_layers):
        attention, mlp = (f"model.layers.{layer}.{part}" for part in ("self_attn", "mlp"))
        queries, keys, values = (f"{attention}.{name}" for name in ("q_proj", "k_proj", "v_proj"))
        yield Product((queries, keys, values), heads * config.head_dim * config.hidden_size)
        yield Product((f"{attention}.o_proj",), config.num_heads * config.head_dim * config.hidden_size)
        yield Product((f"{mlp}.gate_proj", f"{mlp}.up_proj"), 2 * config.hidden_size * config.intermediate_size)
        yield Product((f"{mlp}.down_proj",), config.hidden_size * config.intermediate_size)
    yield Product((HEAD,), config.vocab_size * config.hidden_size)


def quantized_kinds(config: ModelConfig, quantization: str | None) -> Kinds:
    """What the option means for each layer; raises where layers of one product are given different kinds."""
    found = [product.layers for product in products(config)]
    kinds = kinds_of_layers(quantization, [layer for layers in found for layer in layers])
    for layers in found:
        if len({kinds[layer] for layer in layers}) > 1:
            given = ", ".join(f"{layer.rpartition('.')[2]} {kinds[layer]}" for layer in layers)
            raise ConfigError(
                f"quantization: in {layers[0].rpartition('.')[0]} it gives {given}, and these are computed as one "
                "product. Give them the same."
            )
    return kinds
