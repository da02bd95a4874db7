"""Reads ERNIE-4.5-VL's config as that of its decoder, with one number where it has one for text and one for media.

Published configs have these next to the keys of pictures, transformers' under `text_config`. Imports no torch.
"""

from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ..origin import Origin

ERNIE_VL = ("Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VLForConditionalGeneration")
# Tokens routed to the media experts: placeholders of pictures and videos, their starts and their ends.
_MARKS = {
    "image_token_id": 100_295,
    "image_start_token_id": 101_304,
    "image_end_token_id": 101_305,
    "video_token_id": 103_367,
    "video_start_token_id": 101_306,
    "video_end_token_id": 101_307,
}
# Keys of pictures, and keys that the decoder doesn't need.
_OF_PICTURES = (
    *("pixel_hidden_size", "spatial_conv_size", "temporal_conv_size", "use_temporal_conv", "max_text_id"),
    *("im_patch_id", "modality_detach", "freeze_vision"),
)
_MULTIMODAL = ("token_balance_loss", "token_balance_seqlen", "moe_multimodal_dispatch_use_allgather", "mm_vocab_size")
# Keys of the encoder's merger.
_FIXED = {"temporal_conv_size": 2, "use_temporal_conv": True, "mm_vocab_size": 0}


def ernie_vl_text(given: dict[str, Any], origin: Origin) -> dict[str, Any]:
    for name, only in _FIXED.items():
        if given.get(name) not in (None, only):
            raise ConfigError(f"{origin}: {name} is {shown(given[name])}, and only {only} is computed here.")
    config = {key: value for key, value in given.items() if key not in (*_OF_PICTURES, *_MULTIMODAL)}
    config |= {name: _same(config[name], name, origin) for name in ("moe_num_experts", "num_experts") if name in config}
    width = config.get("moe_intermediate_size")
    if isinstance(width, list):
        if len(width) != 2:
            raise ConfigError(f"{origin}: moe_intermediate_size must be one of text and one of media: {shown(width)}.")
        config |= {"moe_intermediate_size": width[0], "media_moe_intermediate_size": width[1]}
    if config.pop("rope_3d", True) is not True:
        raise ConfigError(
            f"{origin}: rope_3d is {shown(given['rope_3d'])}, and only positions in three are computed here."
        )
    if (of_time := config.pop("freq_allocation", None)) is not None and not config.get("rope_scaling"):
        config["rope_scaling"] = {"rope_type": "default", "mrope_section": _section(config, of_time, origin)}
    for name, choice in (("moe_layer_start_index", min), ("moe_layer_end_index", max)):
        if isinstance(value := config.get(name), list) and value:
            config[name] = choice(value)
    return config


def _section(config: dict[str, Any], of_time: Any, origin: Origin) -> list[int]:
    """Return the numbers of angles for height, width and time."""
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    head_dim = config.get("head_dim")
    if not head_dim and type(hidden) is int and type(heads) is int and heads > 0:
        head_dim = hidden // heads
    if type(of_time) is not int or type(head_dim) is not int or not 0 <= of_time <= head_dim // 2:
        raise ConfigError(
            f"{origin}: freq_allocation is {shown(of_time)}, of half of a head's {shown(head_dim)} numbers."
        )
    others = head_dim // 2 - of_time
    return [others // 2, others // 2, of_time]


def media_tokens(whole: dict[str, Any], origin: Origin) -> tuple[int, ...]:
    """Read the media tokens from the whole config."""
    names = (*_MARKS, "im_patch_id")
    named = _MARKS | {name: whole[name] for name in names if whole.get(name) is not None}
    if any(type(value) is not int or value < 0 for value in named.values()):
        raise ConfigError(f"{origin}: the tokens of pictures must be numbers, and are {shown(named)}.")
    return tuple(sorted(set(named.values())))


def _same(value: Any, name: str, origin: Origin) -> Any:
    """Merge equal numbers for text and media into one."""
    if not isinstance(value, list):
        return value
    if len(value) != 2 or value[0] != value[1]:
        raise ConfigError(f"{origin}: {name} is {shown(value)}, and only as many of text as of media are supported.")
    return value[0]
