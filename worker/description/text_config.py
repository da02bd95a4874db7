"""Reads the config of the text part of a model that takes more than text, and the keys that it leaves out.

Such a config describes the decoder under `text_config`, and next to it the encoder of pictures
(`vision_config.py`). It is read as the config of the decoder alone. Imports no torch.
"""

import re
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from .keys.ernie_vl import ERNIE_VL, ernie_vl_text
from .origin import Origin

_MISTRAL_3 = "Mistral3ForConditionalGeneration"
_LLAMA = dict.fromkeys(("", "llama"), "LlamaForCausalLM")
# The decoder's architecture by the model's; if several are possible, by the decoder's model_type ("": not given).
_DECODERS: dict[str, str | dict[str, str]] = {
    **dict.fromkeys(ERNIE_VL, "Ernie4_5_VLMoeTextModel"),
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Idefics3ForConditionalGeneration": _LLAMA,
    "SmolVLMForConditionalGeneration": _LLAMA,
    "Qwen2VLForConditionalGeneration": "Qwen2VLTextModel",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2_5_VLTextModel",
    "Qwen3VLForConditionalGeneration": "Qwen3VLTextModel",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3VLMoeTextModel",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
    _MISTRAL_3: {
        **dict.fromkeys(("", "mistral"), "MistralForCausalLM"),
        "ministral3": "Ministral3ForCausalLM",
    },
}
SEEING = tuple(_DECODERS)  # the architectures of models that see
# Older configs, before transformers 5 or its own classes, have the decoder's keys next to those of pictures.
_FLAT = (*ERNIE_VL, "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration")
# Keys that apply to the whole model, whatever `text_config` says.
_OF_THE_WHOLE = (
    *("quantization_config", "compression_config", "tie_word_embeddings", "dtype", "torch_dtype"),
    *("transformers_version",),
)
# Keys of pictures and sound alone: their encoders and placeholder tokens.
_OF_PICTURES = re.compile(
    r"(vision|audio)_config|(image|video|vision|audio)(_\w+)?_token(_id)?|language_model_only|vision_feature_\w+"
    r"|projector_hidden_act|multimodal_projector_bias|spatial_merge_size|mm_tokens_per_image|scale_factor|pixel_shuffle_factor|perceiver_config|vision_soft_tokens_per_image"
)
# Tensors of these encoders.
PICTURE_TENSORS = re.compile(
    r"(model\.)?(visual|vision_tower|vision_model|audio_tower|embed_vision|embed_audio|multi_modal_projector)\."
)
# An encoder's own parts and its mergers; longer names first.
_TOWERS = ("visual.", "vision_tower.vision_model.", "vision_tower.", "vision_model.")
_PROJECTORS = ("multi_modal_projector.", "connector.", "resampler_model.")
_PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.", ""),
    ("model.text_model.", "model."),
    *((f"{model}{tower}", "visual.") for tower in _TOWERS for model in ("model.", "")),
    *((f"{model}{projector}", "visual.projector.") for projector in _PROJECTORS for model in ("model.", "")),
)


def text_part(config: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """The decoder's config; a plain decoder's config is returned as it is."""
    architectures = config.get("architectures")
    named = architectures if isinstance(architectures, list) else []
    decoder = next((_DECODERS[each] for each in named if isinstance(each, str) and each in _DECODERS), None)
    if decoder is None:
        return config
    inner = config.get("text_config")
    outside = config
    if inner is None and any(each in _FLAT for each in named):
        inner, outside = config, {}
    if not isinstance(inner, dict):
        raise ConfigError(f"{origin}: text_config must be an object that describes the decoder, and is {shown(inner)}.")
    inner = {key: value for key, value in inner.items() if not _OF_PICTURES.fullmatch(key)}
    if any(each in ERNIE_VL for each in named):
        inner = ernie_vl_text(inner, origin)
    if isinstance(decoder, dict):
        kind = inner.get("model_type") or ""
        if kind not in decoder:
            known = ", ".join(filter(None, decoder))
            raise ConfigError(f"{origin}: text_config has model_type {shown(kind)}, and only {known} are supported.")
        decoder = decoder[kind]
    # An outer key that the decoder has too means the same, and the decoder's own takes precedence.
    outer = {key: value for key, value in outside.items() if not _OF_PICTURES.fullmatch(key) and key != "text_config"}
    whole = {key: config[key] for key in _OF_THE_WHOLE if config.get(key) is not None}
    if _MISTRAL_3 in named:  # as in its class, whatever the decoder's config says
        whole.setdefault("tie_word_embeddings", True)
    return outer | inner | whole | {"architectures": [decoder], "model_type": inner.get("model_type")}


def text_name(name: str) -> str:
    """The name of a tensor or layer in a checkpoint of the decoder alone."""
    for prefix, own in _PREFIXES:
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return name


def name_beside(stored: str, name: str) -> str:
    """The checkpoint's name for `name`, in a checkpoint that has a tensor `stored`."""
    prefix, own = next((each for each in _PREFIXES if stored.startswith(each[0])), ("", ""))
    return prefix + name.removeprefix(own)
