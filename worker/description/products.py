"""A decoder's products: the layers of each, by the names that checkpoints give them, and the number of its weights.

Layers of one input are computed as one product, so they share a number format. Reads no weights and imports no torch:
the memory that a model will take, and the layers that `quantization` applies to, are known before anything is read.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.options.quantization import Kinds, kinds_of_layers
from .config import ModelConfig
from .families.family import QKV
from .parts.heads import LayerHeads
from .parts.latent import LatentConfig
from .parts.mixers import DeltaNet, ShortConvolution
from .parts.mixtures import ExpertsConfig
from .parts.stored_names import TOKEN_INPUT_PARTS, TOKEN_INPUT_PROJECTION, USUAL
from .vision_config import VisionConfig

HEAD = "lm_head"
TABLE = "model.embed_tokens"
VISION = "visual."  # prefix of an encoder's layer names
_OF_VISION = {"int4": "int8", "wint4": "wint8"}  # fewer bits would blur pictures
# Attention multiplies numbers that are floats, and a layer's products are mostly integers: measured 2.9 on a Zen 5.
KEY_COST = 2.5
Products = dict[tuple[str, ...], int]  # numbers of weights, by the names of the projections


class Product(NamedTuple):
    layers: tuple[str, ...]
    num_weights: int  # over all ranks
    is_of_experts: bool = False


def products(config: ModelConfig, ranks: int = 1) -> Iterator[Product]:
    """All products, the head last."""
    for layer in range(config.num_layers):
        for names, num_weights in _mixer(config, layer, ranks).items():
            yield Product(tuple(f"model.layers.{layer}.{name}" for name in names), num_weights)
        if config.experts is not None and config.experts.is_sparse[layer]:
            yield from _experts(f"model.layers.{layer}", config.experts, config.hidden_size)
        if config.has_mlp(layer):
            parts, sizes = config.family.names, (config.hidden_size, config.mlp_width(layer))
            gate, *others = parts.gate_up_down
            names = (gate, *others) if config.family.has_gate else tuple(others)
            yield from _mlp(f"model.layers.{layer}.{parts.mlp}", *sizes, names)
        if config.token_inputs is not None:
            for name in TOKEN_INPUT_PARTS:
                count = config.token_inputs.width * config.hidden_size
                yield Product((f"model.layers.{layer}.{name}",), ranks * count)
    if config.token_inputs is not None:  # every rank has all of it
        count = config.num_layers * config.token_inputs.width * config.hidden_size
        yield Product((f"model.{TOKEN_INPUT_PROJECTION}",), ranks * count)
    if config.vision is not None:  # every rank has all of it
        yield from _vision(config.vision, ranks)
    yield Product((HEAD,), config.vocab_size * config.hidden_size)


def layer_keys(config: ModelConfig) -> int:
    """The keys that a token attends to in the time of its matrix products in a layer, on average over the layers."""
    experts, num_weights = config.experts, 0.0
    for product in products(config):
        if product.layers[0].startswith("model.layers."):
            share = experts.top_k / experts.num_experts if experts is not None and product.is_of_experts else 1
            num_weights += share * product.num_weights
    if config.latent is not None:
        a_key = config.latent.width + config.latent.rank
    else:
        a_key = 2 * max(heads.head_dim for heads in config.heads)
    return max(1, int(num_weights / config.num_layers / (KEY_COST * config.num_heads * a_key)))


def _vision(vision: VisionConfig, ranks: int) -> Iterator[Product]:
    """An encoder's products; the patch embedding is never quantized."""
    hidden, heads = vision.hidden_size, vision.num_heads * vision.padded_head_dim
    names = vision.family.names
    for layer in range(vision.num_layers):
        block = f"{VISION}{names.blocks}.{layer}"
        inner = f"{block}.{names.attention}"
        yield Product(tuple(f"{inner}.{each}" for each in names.heads), ranks * 3 * heads * hidden)
        yield Product((f"{inner}.{names.output}",), ranks * heads * hidden)
        yield from _mlp(f"{block}.mlp", ranks * hidden, vision.intermediate_size, vision.family.mlp)
    for name, count in _mergers(vision):
        yield Product((f"{VISION}{name}",), ranks * count)


def _mergers(vision: VisionConfig) -> Iterator[tuple[str, int]]:
    """The projections of the mergers, and their weights."""
    joined, names, merging = vision.merge**2 * vision.hidden_size, vision.family.merger, vision.family.merging
    if merging == "mean":
        yield "projector.mm_input_projection_weight", vision.hidden_size * vision.out_size
    elif merging == "projection":
        yield "projector.modality_projection.proj", joined * vision.out_size
    elif merging == "pairs":
        for part, width in (("spatial_linear", joined), ("temporal_linear", 2 * joined)):
            yield f"projector.{part}.0", width * joined
            yield f"projector.{part}.2", joined * joined
        yield "projector.mlp", joined * vision.out_size
    else:
        for merger in ("merger", *(f"deepstack_merger_list.{number}" for number in range(len(vision.taps)))):
            yield f"{merger}.{names.up}", joined * joined
            yield f"{merger}.{names.down}", joined * vision.out_size


def _mlp(
    name: str, hidden_size: int, width: int, projections: tuple[str, ...] = USUAL.gate_up_down
) -> Iterator[Product]:
    """`projections`: the gate if there is one, up and down."""
    *inner, down = projections
    yield Product(tuple(f"{name}.{each}" for each in inner), len(inner) * hidden_size * width)
    yield Product((f"{name}.{down}",), hidden_size * width)


def _experts(layer: str, experts: ExpertsConfig, hidden_size: int) -> Iterator[Product]:
    """The experts of a layer count as one product, of which each token uses a part. Routers are never quantized."""
    block, names = experts.names.within(layer), experts.names
    gate, up, down = names.gate_up_down
    numbers = range(names.first_expert, names.first_expert + experts.num_experts)
    each = [f"{block}.{names.experts}.{number}" for number in numbers]
    num_weights = experts.num_experts * hidden_size * experts.width
    yield Product(tuple(f"{name}.{part}" for name in each for part in (gate, up)), 2 * num_weights, True)
    yield Product(tuple(f"{name}.{down}" for name in each), num_weights, True)
    if experts.shared_width:
        yield from _mlp(f"{block}.{names.shared}", hidden_size, experts.shared_width)
    if experts.of_media is not None:
        yield from _experts(layer, experts.of_media, hidden_size)


def _mixer(config: ModelConfig, layer: int, ranks: int) -> Products:
    """A layer's mixer: the projections of each product, and its weights."""
    mixer = config.mixers[layer]
    if isinstance(mixer, DeltaNet):
        return _within("linear_attn", _delta_net(mixer, config.hidden_size))
    if isinstance(mixer, ShortConvolution):
        square = mixer.channels * config.hidden_size
        return _within("conv", {("in_proj",): 3 * square, ("out_proj",): square})
    if config.latent is not None:
        return _within("self_attn", _latent_attention(config, config.latent, ranks))
    return _within("self_attn", _attention(config, config.heads[layer], ranks))


def _within(block: str, products: Products) -> Products:
    return {tuple(f"{block}.{name}" for name in names): count for names, count in products.items()}


def _attention(config: ModelConfig, heads: LayerHeads, ranks: int) -> Products:
    # Ranks that share a key-value head have a copy each.
    queries = config.num_heads * (1 + config.family.gates_attention)
    a_head = heads.head_dim * config.hidden_size
    names = QKV[: 1 + heads.num_projected]
    return {
        names: (queries + max(heads.num_kv_heads, ranks) * heads.num_projected) * a_head,
        (config.family.names.attention_output,): config.num_heads * a_head,
    }


def _delta_net(net: DeltaNet, hidden_size: int) -> Products:
    """A delta net's products; the projections that control how fast a state changes are never quantized."""
    if net.is_fused:
        inner: Products = {("in_proj_qkvz",): 2 * (net.keys + net.values) * hidden_size}
    else:
        mixed = 2 * net.keys + net.values
        inner = {("in_proj_qkv",): mixed * hidden_size, ("in_proj_z",): net.values * hidden_size}
    return inner | {("out_proj",): net.values * hidden_size}


def _latent_attention(config: ModelConfig, latent: LatentConfig, ranks: int) -> Products:
    """Latent attention's products; every rank has the parts that heads share."""
    queries, inputs = config.num_heads * latent.query_dim, latent.query_rank or config.hidden_size
    found: Products = {("q_proj" if latent.query_rank is None else "q_b_proj",): queries * inputs}
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
    """Apply the option to each layer; raise if layers of one product get different kinds."""
    found = [product.layers for product in products(config)]
    kinds = kinds_of_layers(quantization, [layer for layers in found for layer in layers])
    kinds |= {layer: _OF_VISION.get(kind or "", kind) for layer, kind in kinds.items() if layer.startswith(VISION)}
    for layers in found:
        if len({kinds[layer] for layer in layers}) > 1:
            first, other = layers[0], next(layer for layer in layers if kinds[layer] != kinds[layers[0]])
            raise ConfigError(
                f"quantization: it gives {first} {kinds[first]} and {other} {kinds[other]}, and these are computed as "
                "one product. Give them the same."
            )
    return kinds
