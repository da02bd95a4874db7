"""EAGLE-3 heads as they are published: a folder of their own, with a config, one or more layers and sometimes a
smaller vocabulary.

Two forms of the config are read: that of SafeAILab, SpecForge and ModelOpt (`LlamaForCausalLMEagle3`), which is a
Llama's with more keys, and that of speculators, which has the Llama's inside. Norms and vocabularies that a head may
have are found by their tensors. Reads no weights.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_json, values_of
from .config import ModelConfig, describe
from .origin import CONFIG_FILE, Origin, origin_of

_INSIDE = "transformer_layer_config"  # where speculators has the layers' config
_LAYERS = "eagle_aux_hidden_state_layer_ids"
_KINDS = ("llama", "qwen2", "qwen3", "mistral")  # whose heads all have a Llama's layers
_ARCHITECTURES = {False: "LlamaForCausalLM", True: "Qwen3ForCausalLM"}  # the latter normalizes queries and keys
# Tensors that only training needs, or that repeat others.
_UNREAD = ("t2d", "verifier_norm.", "verifier_lm_head.", "layers.0.self_attn.rotary_emb.")
# Flags of `eagle_config` with the only value whose computation is known here.
_KNOWN_FLAGS = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
}
# Flags that say that a head has a norm, and the tensors of which it then has one.
_NORM_TENSORS = {
    "norm_before_fc": ("input_norm.weight", "fc_norm.0.weight"),
    "fc_norm": ("fc_norm.0.weight",),
}


class EagleForm(NamedTuple):
    """How a head computes, except for what its tensors show."""

    config: ModelConfig  # of its layers
    reads: tuple[int, ...]  # the stream before these layers of the model; their number: after the last
    keeps_normed: bool  # the first layer adds to the normed hidden state instead of the plain one
    feeds_normed: bool  # for the token after the next, it reads its own output after the norm
    num_tokens: int | None  # of its own output head, if the config states it


def read_heads_config(folder: Path) -> dict[str, Any]:
    found = read_model_json(folder / CONFIG_FILE)
    if not isinstance(found, dict):
        raise ConfigError(f"{origin_of(folder)} holds no JSON object. Download the heads again.")
    return found


def read_eagle_form(folder: Path, names: Collection[str], model: ModelConfig) -> EagleForm:
    """Read the config of heads with these tensors, which are to draft for the model."""
    origin = origin_of(folder)
    given = read_heads_config(folder)
    _require_known_form(origin, given, names)
    with values_of(str(origin)):
        inner = given.get(_INSIDE)
        layers = {"num_hidden_layers": 1} | dict(given if inner is None else inner)
        if (kind := layers.get("model_type", "llama")) not in _KINDS:
            raise ConfigError(
                f"{origin}: EAGLE-3 heads of model_type {shown(kind)} are not supported, only {', '.join(_KINDS)}."
            )
        is_normed = "layers.0.self_attn.q_norm.weight" in names
        config = describe(layers | {"architectures": [_ARCHITECTURES[is_normed]]}, origin)
        reads = _layers_read(given, model.num_layers, origin)
        # As each format's own code reads a config without the key.
        keeps_normed = _flag(origin, given, "norm_before_residual", inner is not None)
        feeds_normed = _flag(origin, given, "norm_output", False)
    _check_sizes(origin, given, config, names, model)
    # Positions beyond what it was trained for cost drafts, and no answer.
    config = replace(config, max_position=model.max_position)
    return EagleForm(config, reads, keeps_normed, feeds_normed, given.get("draft_vocab_size"))


def head_names(stored: Iterable[str]) -> dict[str, str]:
    """Stored names by one name for each of a head's tensors."""
    found: dict[str, str] = {}
    for name in stored:
        if (other := found.setdefault(_head_name(name), name)) != name:
            raise ConfigError(
                f"The heads' weights hold one tensor under two names, {other} and {name}, which may differ. Use a "
                "folder with one of them."
            )
    return found


def check_all_read(origin: Origin, leftovers: Iterable[str]) -> None:
    """Refuse a head with parts that are unknown here: without them it would draft nonsense."""
    if unknown := [name for name in leftovers if not name.startswith(_UNREAD)]:
        raise ConfigError(
            f"{origin.model} has tensors that no known EAGLE-3 head has ({', '.join(unknown[:3])}), so its form isn't "
            "supported. Use other heads or another method."
        )


def _head_name(name: str) -> str:
    name = name.removeprefix("model.")
    return f"layers.0.{name.removeprefix('midlayer.')}" if name.startswith("midlayer.") else name


def _require_known_form(origin: Origin, given: Mapping[str, Any], names: Collection[str]) -> None:
    """Refuse what the config says of heads that compute otherwise than those that are known here."""
    kind, named = given.get("speculators_model_type"), given.get("architectures")
    others = [] if kind in (None, "eagle3") else [kind]
    others += [
        name
        for name in (named if isinstance(named, list) else ())
        if "eagle" in str(name).casefold() and "eagle3" not in str(name).casefold()
    ]
    if others:
        raise ConfigError(f"{origin}: heads of the form {shown(others[0])} are not supported, only EAGLE-3's.")
    flags = given.get("eagle_config") or {}
    if not isinstance(flags, dict):
        raise ConfigError(f"{origin}: eagle_config must be an object, and is {shown(flags)}.")
    for key, known in _KNOWN_FLAGS.items():
        if (value := flags.get(key, known)) is not known:
            raise ConfigError(f"{origin}: heads with {key}={shown(value)} are not supported, only with {known}.")
    for key, tensors in _NORM_TENSORS.items():
        if _flag(origin, given, key, False) and not any(name in names for name in tensors):
            raise ConfigError(
                f"{origin} has {key}=True, and the heads have no {' or '.join(tensors)}. Download the heads again."
            )


def _flag(origin: Origin, given: Mapping[str, Any], key: str, default: bool) -> bool:
    """A flag of the config; the text "false" would count as true."""
    value = given.get(key)
    if value is not None and type(value) is not bool:
        raise ConfigError(f"{origin}: {key} must be true or false, and is {shown(value)}.")
    return default if value is None else value


def _layers_read(given: Mapping[str, Any], num_layers: int, origin: Origin) -> tuple[int, ...]:
    """Of a model with so many layers. Numbers at the top level count the layers before; those inside `eagle_config`
    name the layer whose output is meant, which is the input of the next one."""
    own, inner = given.get(_LAYERS), (given.get("eagle_config") or {}).get(_LAYERS)
    for each in (own, inner):
        if each is not None and not (isinstance(each, list) and all(type(number) is int for number in each)):
            raise ConfigError(f"{origin}: {_LAYERS} must be a list of whole numbers, and is {shown(each)}.")
    found = own or [number + 1 for number in inner or ()] or _usual_layers(num_layers, origin)
    if not all(0 <= each <= num_layers for each in found):
        raise ConfigError(
            f"{origin}: {_LAYERS} names the layers {shown(found)}, and the model has {num_layers}. The heads were made "
            "for another model."
        )
    return tuple(found)


def _usual_layers(num_layers: int, origin: Origin) -> list[int]:
    """A low, a middle and a high layer: heads whose config names none were trained with these."""
    usual = [2, num_layers // 2, num_layers - 3]
    if usual != sorted(usual):
        raise ConfigError(
            f"{origin} doesn't say which layers the heads read ({_LAYERS}), and a model of {num_layers} layers is too "
            f"small for the usual three. Add the key to {CONFIG_FILE}."
        )
    return usual


def _check_sizes(
    origin: Origin, given: Mapping[str, Any], config: ModelConfig, names: Collection[str], model: ModelConfig
) -> None:
    read = given.get("target_hidden_size") or config.hidden_size
    if type(read) is not int:
        raise ConfigError(f"{origin}: target_hidden_size must be a whole number, and is {shown(read)}.")
    embeds = "embed_tokens.weight" in names or config.hidden_size == model.hidden_size
    if read != model.hidden_size or config.vocab_size != model.vocab_size or not embeds:
        raise ConfigError(
            f"{origin.model} was made for another model: it reads hidden states of {read} numbers and has "
            f"{config.vocab_size:,} tokens, and {model.family.name} here has {model.hidden_size} and "
            f"{model.vocab_size:,}. Use heads that were trained for this model."
        )
    if "fc.weight" not in names:
        raise ConfigError(
            f"{origin.model} has no fc.weight, which joins the states of several layers, so it holds no EAGLE-3 heads."
        )
    if config.hidden_size != model.hidden_size and not config.tie_word_embeddings and "lm_head.weight" not in names:
        raise ConfigError(
            f"{origin.model} has no lm_head.weight, and the model's reads {model.hidden_size} numbers, while these "
            f"heads have {config.hidden_size}. Use heads with an output head of their own."
        )
