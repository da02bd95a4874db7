"""Judges values of keys that name mechanisms: some change nothing, some only matter in a long context."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]
ChangesNothing = Callable[[Any, Config], bool]
# Tokens of context within which plain attention computes the same; None: it never does.
ExactWithin = Callable[[Any, Config], int | None]
# Texts that switch a mechanism off.
_SAYS_NO = ("", "none", "null", "false", "no", "off", "disabled")

# --- values that change nothing ---------------------------------------------------------------------------------------


def is_off(value: Any, config: Config) -> bool:
    """Whether a value means off; a list if every item does; an object by its own switch."""
    if isinstance(value, (list, tuple)):
        return all(is_off(each, config) for each in value)
    if isinstance(value, dict):
        return not value or any(value.get(switch) is False for switch in ("enabled", "enable"))
    if isinstance(value, str):
        return value.strip().lower() in _SAYS_NO
    return value is None or value is False or (is_number(value) and value == 0)


def is_one(value: Any, config: Config) -> bool:
    """Whether a factor, or every item of a list, is 1."""
    if isinstance(value, (list, tuple)):
        return all(is_one(each, config) for each in value)
    return value is None or value is False or (is_number(value) and value == 1)


def is_off_or_one(value: Any, config: Config) -> bool:
    return is_off(value, config) or is_one(value, config)


def is_endless(value: Any, config: Config) -> bool:
    """Whether a bound has no effect; -1 means none."""
    return is_off(value, config) or (is_number(value) and value in (-1, math.inf))


def is_on(value: Any, config: Config) -> bool:
    return value is None or value is True or (is_number(value) and value == 1)


def is_unused_window(value: Any, config: Config) -> bool:
    return is_endless(value, config) or config.get("use_sliding_window") is False


def is_the_window(value: Any, config: Config) -> bool:
    """Whether the value is the window, or none. Gemma 2's configs give their window twice."""
    return is_unused_window(value, config) or value == config.get("sliding_window")


def is_unused_slope(value: Any, config: Config) -> bool:
    """Whether the slope is off, or another key says that it is unused."""
    return is_off(value, config) or ("alibi" in config and is_off(config["alibi"], config))


def are_known_layers(value: Any, config: Config) -> bool:
    """Whether all listed layer types are known."""
    sized = [kind for kind, size in _SIZED_LAYERS.items() if config.get(size)]
    kinds = value if isinstance(value, list) else [value]
    return all(kind is None or kind in ("full_attention", "attention", *sized) for kind in kinds)


def is_dense(value: Any, config: Config) -> bool:
    return all(each in (None, "dense") for each in (value if isinstance(value, list) else [value]))


def has_no_experts(value: Any, config: Config) -> bool:
    """Whether the number of experts is 0, or another key says that there are none."""
    counts = [config[key] for key in COUNTS_OF_EXPERTS.split() if key in config]
    return is_off_or_one(value, config) or (bool(counts) and all(count in (None, 0) for count in counts))


def is_rotated_share(value: Any, config: Config) -> bool:
    """Whether this older name of `partial_rotary_factor` agrees with it."""
    figures = config.get("rope_parameters")
    own = figures.get("partial_rotary_factor") if isinstance(figures, dict) else None
    return value is None or value == (own or config.get("partial_rotary_factor") or 1)


def is_head_dim(value: Any, config: Config) -> bool:
    return value is None or value == head_dim_of(config)


def is_plain_scale(value: Any, config: Config) -> bool:
    """Whether the value asks for the usual scale, 1 / √head_dim."""
    head_dim = head_dim_of(config)
    return value is None or (is_number(value) and bool(head_dim) and math.isclose(value, head_dim**-0.5, rel_tol=1e-6))


def head_dim_of(config: Config) -> int:
    given, hidden, heads = (config.get(key) for key in ("head_dim", "hidden_size", "num_attention_heads"))
    if given is None and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        return hidden // heads
    return given if isinstance(given, int) else 0


def rotates_all(value: Any, config: Config) -> bool:
    """Whether every layer rotates; SmolLM3 and Llama 4 write 1 for a layer that does."""
    return value is None or (isinstance(value, list) and all(each in (1, True) for each in value))


def names_none_of(words: str) -> ChangesNothing:
    """Accept a text, or texts in lists, without these words: others, such as "gqa", change nothing."""
    pattern = re.compile("|".join(words.split()), re.IGNORECASE)
    return lambda value, config: not any(pattern.search(text) for text in texts(value))


def names_plain_attention(value: Any, config: Config) -> bool:
    is_latent = config.get("kv_lora_rank") is not None
    return (OTHER_THAN_LATENT if is_latent else OTHER_ATTENTIONS)(value, config)


def texts(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


COUNTS_OF_EXPERTS = "num_experts num_local_experts n_routed_experts moe_num_experts"
_SIZED_LAYERS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
OTHER_THAN_LATENT = names_none_of(
    "linear lightning sparse mamba ssm rwkv retention hybrid delta chunk bidirectional performer local window sliding"
)
OTHER_ATTENTIONS = names_none_of(
    "mla latent linear lightning sparse mamba ssm rwkv retention hybrid delta chunk bidirectional performer local "
    "window sliding"
)

# --- the context within which plain attention is exact ----------------------------------------------------------------


def never(value: Any, config: Config) -> int | None:
    return None


def within_window(value: Any, config: Config) -> int | None:
    """The smallest window, if there are several."""
    windows = [each for each in (value if isinstance(value, list) else [value]) if each is not None]
    return min(windows, default=None) if all(is_count(each) for each in windows) else None


def within_first_chunk(value: Any, config: Config) -> int | None:
    """Dual chunk attention renumbers positions from the second chunk on, and scales beyond the original context.

    The sparse attention in such a config is a faster approximation of it.
    """
    if not isinstance(value, dict) or not is_count(value.get("chunk_size")):
        return None
    local, original = value.get("local_size", 0), value.get("original_max_position_embeddings") or value["chunk_size"]
    if type(local) is not int or local < 0 or not is_count(original):
        return None
    return min(value["chunk_size"] - local, original) if local < value["chunk_size"] else None


def within_dense_length(value: Any, config: Config) -> int | None:
    """InfLLM chooses blocks from `dense_len` tokens on; -1 means always."""
    length = value.get("dense_len") if isinstance(value, dict) else None
    return length if is_count(length) else None


def is_count(value: Any) -> bool:
    return type(value) is int and value > 0
