"""A model folder's config.json, read into a frozen description.

Configs are taken as transformers 4 writes them (`rope_theta`, `rope_scaling`, `torch_dtype`), as 5 does
(`rope_parameters`, `dtype`), and as Paddle does (`keys/paddle.py`). Reads no weights and imports no torch, so that
asking for a model's context is cheap.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_json, values_of
from ...protocol.pooling.encoders import key_of_both_sides, sees_both_sides
from ...records import dataclass
from .families.family import Family, QKNorm, Windows
from .families.table import FAMILIES, family_without_head
from .keys.ernie_vl import media_tokens
from .keys.family_keys import under_read_names
from .keys.mechanisms import EXPERTS, NORMED_QUERIES, NORMS_WITH_MEAN, ROTATED_PAIRS
from .keys.numbers import LARGEST, MOST, count, positive, require_flags
from .keys.paddle import as_transformers_writes_it
from .keys.unread_keys import ContextCut, ReadKeys, Unsupported, context_cut, refuse_unsupported, unsupported_keys
from .layer_ropes import LayerRopes, read_layer_ropes, rescaled
from .nearest_family import unknown_architecture
from .origin import CONFIG_FILE, Origin, origin_of
from .parts.activations import Activation, read_activation
from .parts.heads import LayerHeads
from .parts.latent import LatentConfig, read_latent
from .parts.mixers import Mixer, StateShape, with_projections_apart
from .parts.mixtures import ExpertsConfig, read_experts
from .parts.norms import NormPlaces
from .parts.rope import RopeConfig, read_rope
from .parts.scales import Scales
from .parts.text_embedding import TextEmbedding
from .parts.token_inputs import TokenInputs, read_token_inputs
from .quantization import Quantization, read_quantization
from .text_config import text_part
from .vision_config import VisionConfig, read_vision

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")  # required by every family


@dataclass(frozen=True)
class ModelConfig:
    """One decoder."""

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    heads: tuple[LayerHeads, ...]  # key-value heads of each layer; latent attention has one, shared by all
    rms_norm_eps: float
    tie_word_embeddings: bool
    windows: Windows
    biased: tuple[str, ...]
    ropes: LayerRopes
    qk_norm: QKNorm
    qkv_limit: float | None  # queries, keys and values are clamped to ± this
    norm_places: NormPlaces
    activation: Activation  # of the MLPs
    scales: Scales
    max_position: int  # tokens of context that the config gives, or within which plain attention is exact
    dtype: str  # of the checkpoint: float32, float16 or bfloat16
    num_draft_layers: int = 0  # layers for speculative decoding, stored after the others and not read
    experts: ExpertsConfig | None = None  # of the sparse layers
    quantization: Quantization | None = None  # of matrices that the checkpoint stores quantized
    latent: LatentConfig | None = None  # if the heads share one vector per token
    token_inputs: TokenInputs | None = None  # a separate token embedding for each layer
    widens_readers: bool = False  # MLPs of layers that read another layer's keys are twice as wide
    vision: VisionConfig | None = None  # its vision encoder
    media_tokens: tuple[int, ...] = ()  # prompt tokens that have experts of their own
    mixers: tuple[Mixer, ...] = ()  # by layer, what replaces attention; None: attention
    cut: ContextCut | None = None  # why `max_position` is less than the config's
    is_two_sided: bool = False  # tokens see those after them as well
    text_embedding: TextEmbedding | None = None  # of an encoder of texts

    @property
    def rotates_pairs(self) -> bool:
        """Whether rotary embeddings pair neighbouring elements instead of halves."""
        return self.family.rotates_pairs if self.latent is None else self.latent.rotates_pairs

    def has_mlp(self, layer: int) -> bool:
        """Whether the layer has an MLP for all tokens, with or without experts next to it."""
        return self.experts is None or not self.experts.is_sparse[layer] or self.experts.names.beside is not None

    def mlp_width(self, layer: int) -> int:
        return self.intermediate_size * (1 + (self.widens_readers and self.heads[layer].source is not None))

    def rotary_dim(self, layer: int) -> int:
        """Elements of a head that are rotated; 0: none."""
        rope = self.ropes.of(layer)
        return 0 if rope is None else rope.rotary_dim

    @property
    def states(self) -> tuple[StateShape | None, ...]:
        """By layer, the state it keeps of all earlier tokens; None: keys and values, or latents, of each token."""
        return tuple(None if mixer is None else mixer.state for mixer in self.mixers)


def read_config(
    model_folder: Path,
    sees: bool = True,
    rope_scaling: Mapping[str, Any] | None = None,
    *,
    is_pooled: bool = False,
) -> ModelConfig:
    """Read the config of the model in `model_folder`; an error names what is missing or not supported.

    The vision encoder is left out unless `sees`. `rope_scaling` overrides the model's own. A model that is pooled may
    have another head than a decoder's, or none.
    """
    origin, path = origin_of(model_folder), model_folder / CONFIG_FILE
    try:
        config = read_model_json(path)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"{model_folder} holds no {CONFIG_FILE}, so it is not a model folder.") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{origin} holds no JSON object.")
    with values_of(str(origin)):
        whole = as_transformers_writes_it(config, path)
        config = text_part(whole, origin)
    described = describe(config, origin, rope_scaling, is_pooled=is_pooled)
    with values_of(str(origin)):
        if described.experts is not None and described.experts.of_media is not None:
            described = replace(described, media_tokens=media_tokens(whole, origin))
        if not sees:
            return described
        vision = read_vision(whole, origin, described.hidden_size, described.rms_norm_eps)
    return replace(described, vision=vision)


def describe(
    config: dict[str, Any],
    origin: Origin,
    rope_scaling: Mapping[str, Any] | None = None,
    *,
    is_pooled: bool = False,
) -> ModelConfig:
    """Describe a decoder by its config, as transformers writes it."""
    require_flags(config, origin)
    family = _family(config, origin, is_pooled)
    if rope_scaling is not None:
        config = rescaled(config, family, rope_scaling)
    with values_of(str(origin)):
        described, unsupported = _read_as(family, config, origin)
    if described.is_two_sided and not is_pooled:
        raise ConfigError(
            f"{origin}: by {key_of_both_sides(config)}, its tokens see those after them, so it writes no text. "
            "Use runner='pooling'."
        )
    refuse_unsupported([each for each in unsupported if each.exact_within is None], family.name, origin)
    if (cut := context_cut(unsupported, described.max_position)) is not None:
        described = replace(described, max_position=cut.tokens, cut=cut)
    return described


def _read_as(family: Family, given: dict[str, Any], origin: Origin) -> tuple[ModelConfig, list[Unsupported]]:
    """Read the config as the family's; also return the keys that ask for something the family lacks."""
    given = under_read_names(given, family.name)
    config = ReadKeys(family.defaults | given)
    if "norm_bias" in family.defaults and config["norm_bias"]:
        family = replace(family, norm=family.norm._replace(has_bias=True))
    described = _described(config, family, origin)
    idle = {
        EXPERTS: family.mixture is not None and described.experts is None,
        NORMED_QUERIES: described.qk_norm is not None,
        NORMS_WITH_MEAN: family.norm.has_mean,
        ROTATED_PAIRS: described.rotates_pairs,
    }
    return described, unsupported_keys(given, config, family.name, frozenset(what for what in idle if idle[what]))


def _described(config: dict[str, Any], family: Family, origin: Origin) -> ModelConfig:
    number = partial(count, config, origin)
    num_layers, num_heads, hidden_size = map(number, ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    latent = read_latent(config, number, origin) if family.is_latent else None
    context = number("max_position_embeddings")
    windows, is_two_sided = _windows(config, family, num_layers, origin), sees_both_sides(config)
    embedding = None if family.text_embedding is None else family.text_embedding(config)
    if is_two_sided and not family.is_two_sided:  # the window counts both sides
        windows = tuple(None if window is None else window // 2 + 1 for window in windows)
    heads = _heads(config, family, windows, latent, origin)
    rotated = tuple(latent.rope_dim if latent else each.head_dim for each in heads)
    ropes = _ropes(config, family, windows, rotated, context, origin)
    reached = 0 if family.has_whole_context else max((rope.max_position for rope in ropes.ropes), default=0)
    mixers = family.mixers(config, num_layers, number)
    experts = None
    if family.mixture is not None:
        experts = read_experts(config, family.mixture, num_layers, number, origin.config)
    quantization = read_quantization(config, origin.folder / CONFIG_FILE)
    if quantization is not None and quantization.is_gguf:
        mixers = with_projections_apart(mixers)
    return ModelConfig(
        family=family,
        vocab_size=number("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_mlp_width(config, family, origin),
        num_layers=num_layers,
        num_heads=num_heads,
        heads=heads,
        rms_norm_eps=positive(config, origin, "rms_norm_eps", 1e-6),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        windows=windows,
        biased=family.biased(config),
        ropes=ropes,
        qk_norm=family.qk_norm(config),
        qkv_limit=_qkv_limit(config, family, origin),
        norm_places=family.norm_places(config),
        activation=read_activation(config, family.activation, family.meant_activations, _only(family, experts, mixers)),
        scales=family.scales(config),
        max_position=(reached or context) - (0 if embedding is None else embedding.first_position),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch."),
        num_draft_layers=number("num_nextn_predict_layers", 0),
        experts=experts,
        quantization=quantization,
        latent=latent,
        token_inputs=read_token_inputs(config, number) if family.has_token_inputs else None,
        widens_readers=family.widens_readers and bool(config.get("use_double_wide_mlp")),
        mixers=mixers,
        is_two_sided=is_two_sided,
        text_embedding=embedding,
    )


def _heads(
    config: dict[str, Any], family: Family, windows: Windows, latent: LatentConfig | None, origin: Origin
) -> tuple[LayerHeads, ...]:
    if latent is not None:
        return (LayerHeads(1, latent.width),) * len(windows)
    number = partial(count, config, origin)
    num_heads, hidden_size = number("num_attention_heads"), number("hidden_size")
    usual = LayerHeads(number("num_key_value_heads", num_heads), number("head_dim", hidden_size // num_heads))
    found = family.heads(config, usual, windows, lambda said, key: count(said, origin, key))
    for each in found:
        if num_heads % each.num_kv_heads:
            shared = each.num_kv_heads
            raise ConfigError(f"{origin}: {num_heads} attention heads can't share {shared} key-value heads evenly.")
    return found


def _ropes(
    config: dict[str, Any], family: Family, windows: Windows, rotated: tuple[int, ...], context: int, origin: Origin
) -> LayerRopes:
    """`rotated`: by layer, how many elements of a head may rotate."""

    def read(said: dict[str, Any], layer: int) -> RopeConfig:
        return read_rope(said, rotated[layer], context, family, origin)

    ropes = read_layer_ropes(config, family, windows, read)
    for reach in (reach for rope in ropes.ropes for reach in (rope.original_context, rope.max_position)):
        if not 0 < reach <= LARGEST:
            raise ConfigError(f"{origin}: its rotary positions reach {shown(reach)} tokens, which no model's do.")
    return ropes


def _only(family: Family, experts: ExpertsConfig | None, mixers: tuple[Mixer, ...]) -> Activation | None:
    """The one activation that a config may name, since the computation doesn't depend on the key."""
    if family.mixture is not None and experts is not None:
        return family.mixture.activation_name
    return "silu" if any(mixers) else None


def _mlp_width(config: dict[str, Any], family: Family, origin: Origin) -> int:
    given = count(config, origin, "intermediate_size")
    if family.mlp_width is None:
        return given
    width = family.mlp_width(config)
    if not 0 < width <= MOST["intermediate_size"]:
        raise ConfigError(f"{origin}: its keys give the MLP an inner layer of {shown(width)}, which no model's has.")
    return width


def _qkv_limit(config: dict[str, Any], family: Family, origin: Origin) -> float | None:
    """Read the bound if the family clamps; otherwise the key stays unread."""
    if not family.clamps_qkv or config.get("clip_qkv") is None:
        return None
    return positive(config, origin, "clip_qkv", 0.0)


def _windows(config: dict[str, Any], family: Family, num_layers: int, origin: Origin) -> Windows:
    windows = family.windows(config, num_layers)
    if len(windows) != num_layers:
        raise ConfigError(f"{origin}: layer_types names {len(windows)} layers, and num_hidden_layers is {num_layers}.")
    for window in windows:
        if window is not None and (type(window) is not int or window < 1):
            raise ConfigError(f"{origin}: sliding_window must be a positive whole number, and is {shown(window)}.")
    return windows


def _family(config: dict[str, Any], origin: Origin, is_pooled: bool) -> Family:
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list):
        raise ConfigError(f"{origin}: architectures must be a list of names, and is {shown(architectures)}.")
    for architecture in filter(_is_text, architectures):
        family = FAMILIES.get(architecture) or (family_without_head(architecture) if is_pooled else None)
        if family is not None:
            return family
    unsupported_as = partial(_unsupported_as, config, origin)
    raise ConfigError(f"{origin} {unknown_architecture(config, architectures, unsupported_as)}")


def _unsupported_as(config: dict[str, Any], origin: Origin, family: Family) -> list[str] | None:
    """Keys that would be unsupported if this were a model of the family; None if it can't be one."""
    if any(key not in config for key in _SIZES):
        return None
    try:
        with values_of(str(origin)):
            return [each.key for each in _read_as(family, config, origin)[1] if each.exact_within is None]
    except ConfigError:
        return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
