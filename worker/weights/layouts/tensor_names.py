"""The names of tensors in a checkpoint, and which of them may stay unread.

Layers use the names that `…ForCausalLM` saves. A model that was saved without its head, such as Qwen3-Embedding, has
the same names without the prefix `model.`. Reads no weights.
"""

import re
from collections.abc import Iterable, Sequence

from ....protocol.errors import ConfigError
from ...description.config import ModelConfig
from ...description.origin import Origin
from ...description.text_config import PICTURE_TENSORS, text_name

_LAYER = re.compile(r"(?:model\.layers|blk)\.(\d+)\.")  # the second: unknown tensors of GGUF files
_HARMLESS = re.compile(
    r"rotary_emb\.(inv_freq|cos_cached|sin_cached)$"  # angles saved by old exporters, computed here
    r"|position_ids$"  # numbers from 0 on, saved by old exporters
    r"|(^|[._])mtp"  # heads for speculative decoding
    r"|^rope_(freqs|factors_long|factors_short)\.weight$"  # in GGUF files: angles again, or their factors
    r"|\.(q|k|v|kv)_(scale|zero_point)$"  # scales for an 8-bit KV cache, computed per row here
)
# Names of encoders, of which those saved with a head have a prefix.
_ENCODER_PREFIX = re.compile(r"^(model|bert|roberta|camembert|xlm_roberta)\.")
_EMBEDDINGS = re.compile(r"(?:\w+\.)?embeddings\.(word|tok)_embeddings\.")
_OF_ENCODERS = re.compile(r"embeddings\.|encoder\.layer\.|layers\.\d|final_norm\.")
_OF_KEYS = re.compile(r"self_attn\.[kv]_(proj|norm)\.")
_OF_MIXERS = ("self_attn.", "linear_attn.", "conv.")
_SHOWN = 3
PADDLE_PREFIX = "ernie."  # prefix of names in Paddle's own layout


def layer_names(stored: Iterable[str]) -> dict[str, str]:
    """Stored names by the names that layers ask for."""
    by_name = {text_name(name): name for name in stored}
    if any(_EMBEDDINGS.match(name) for name in by_name):
        return {_encoder_name(name): stored for name, stored in by_name.items()}
    if "embed_tokens.weight" not in by_name:
        return by_name
    return {name if name.startswith("lm_head.") else f"model.{name}": stored for name, stored in by_name.items()}


def _encoder_name(name: str) -> str:
    """The name of an encoder's tensor as a decoder's would be: `model.layers.0.…`, and heads without a prefix."""
    name = _ENCODER_PREFIX.sub("", name)
    return f"model.{name.replace('encoder.layer.', 'layers.', 1)}" if _OF_ENCODERS.match(name) else name


def is_paddles(stored: Iterable[str]) -> bool:
    """Whether these names are from Paddle's own layout of a known family."""
    return any(name.startswith(PADDLE_PREFIX) for name in stored)


def check_layers(origin: Origin, names: Iterable[str], config: ModelConfig) -> None:
    """Refuse a checkpoint with more layers than its config, before anything is read."""
    numbers = [int(match[1]) for name in names if (match := _LAYER.match(name)) and not _HARMLESS.search(name)]
    found = max(numbers, default=-1) + 1
    if found > config.num_layers + config.num_draft_layers:
        raise ConfigError(
            f"{origin.model} has tensors of {found} layers, up to model.layers.{found - 1}, and {origin.config} names "
            f"{config.num_layers} (num_hidden_layers). {origin.remedy}."
        )


def check_biases(origin: Origin, names: Iterable[str], config: ModelConfig) -> None:
    """Refuse a checkpoint in which a layer lacks a bias that all others have: layers use whatever biases they find.

    Quantization tools leave some layers unchanged and give others zero biases.
    """
    if config.quantization is not None and not config.quantization.is_gguf:
        return
    layers_with: dict[str, set[int]] = {}
    for name in names:
        if name.endswith("bias") and (layer := _LAYER.match(name)) and int(layer[1]) < config.num_layers:
            layers_with.setdefault(name[layer.end() :], set()).add(int(layer[1]))
    sparse = config.experts.is_sparse if config.experts is not None else (False,) * config.num_layers
    mixing = [(mixer, heads.num_projected) for mixer, heads in zip(config.mixers, config.heads, strict=True)]
    for tensor, found in layers_with.items():
        kinds = mixing if tensor.startswith(_OF_MIXERS) else sparse
        alike = {layer for layer in range(config.num_layers) if kinds[layer] == kinds[min(found)]}
        if config.norm_places.skips_first and tensor == f"{config.norm_places.before_attention}.bias":
            alike.discard(0)
        if missing := alike - found:
            raise ConfigError(
                f"{origin.model} holds model.layers.{min(found)}.{tensor}, and for layer {min(missing)} no such "
                "tensor. Download the model again as a whole."
            )


def check_unread(origin: Origin, unread: Sequence[str], config: ModelConfig) -> list[str]:
    """Refuse a checkpoint with tensors that no layer has read. Return the unread ones that change no answer."""
    harmless = [name for name in unread if _is_harmless(name, config)]
    if unknown := [name for name in unread if name not in harmless]:
        named = ", ".join(unknown[:_SHOWN]) + (", …" if len(unknown) > _SHOWN else "")
        raise ConfigError(
            f"{origin.model} has tensors that no layer of {config.family.name} reads, {len(unknown)} in all: {named}. "
            f"Its answers would be another model's without them. {origin.remedy}, or an engine that knows this model."
        )
    return [name for name in harmless if not name.startswith("lm_head.") and "rotary_emb." not in name]


def _is_harmless(name: str, config: ModelConfig) -> bool:
    if name == "lm_head.weight" and config.tie_word_embeddings:  # many exporters save the tied head a second time
        return True
    if _HARMLESS.search(name) or (PICTURE_TENSORS.match(name) and config.vision is None):
        return True
    layer = _LAYER.match(name)
    if layer is None or int(layer[1]) >= config.num_layers:
        return layer is not None
    # Unused keys and values of a layer that reads another layer's.
    return config.heads[int(layer[1])].source is not None and _OF_KEYS.match(name[layer.end() :]) is not None
