"""Dense families that differ from a Llama in their rotary positions or in the layout of their checkpoints: rows of the
table in `table.py`.
"""

from typing import Any

from ....protocol.fields.rules import shown
from ..parts.norms import AFTER
from ..parts.stored_names import HUNYUAN_NAMES, INTERNLM2_NAMES, QKV_AND_GATE_UP
from .dense import DEFAULTS
from .family import (
    FULL,
    MLP,
    QKV,
    SLIDING,
    Family,
    Windows,
    attention_biases,
    by_head,
    by_type_whatever_is_used,
    every_layer,
    llama_biases,
)


def _rotates(config: dict[str, Any], num_layers: int) -> tuple[bool, ...]:
    """Read `no_rope_layers`, which has a 1 for a layer that rotates; without it every n-th layer does not."""
    given, interval = config.get("no_rope_layers"), config["no_rope_layer_interval"]
    if given is None:
        if type(interval) is not int or interval < 1:
            raise ValueError(f"no_rope_layer_interval must be a positive whole number, and is {shown(interval)}")
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    if not isinstance(given, list) or len(given) < num_layers or any(each not in (0, 1) for each in given):
        raise ValueError(f"no_rope_layers must have 0 or 1 for each of {num_layers} layers, and is {shown(given)}")
    return tuple(map(bool, given[:num_layers]))


def _windows(config: dict[str, Any], num_layers: int) -> Windows:
    """Without `layer_types`, layers that don't rotate have a window, if windows are used."""
    is_used, rotates = config["use_sliding_window"], _rotates(config, num_layers)
    if config.get("layer_types") is None:
        types = [SLIDING if is_used and not each else FULL for each in rotates]
        config = config | {"layer_types": types}
    return by_type_whatever_is_used(config, num_layers)


SMOLLM3 = Family(
    "smollm3",
    windows=_windows,
    biased=llama_biases,
    rotates=lambda config, windows: _rotates(config, len(windows)),
    rope_theta=2_000_000.0,
    defaults=DEFAULTS
    | {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "use_sliding_window": False,
        "sliding_window": None,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
)

PHI3 = Family(
    "phi3",
    windows=every_layer,
    rotates_part=True,
    rope_kinds={"default": "default", **dict.fromkeys(("longrope", "su", "yarn"), "longrope")},
    stored=QKV_AND_GATE_UP,
    defaults=DEFAULTS
    | {
        "vocab_size": 32_064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
    },
)


def _internlm2_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*QKV, "o_proj") if config["bias"] else ()


INTERNLM2 = Family(
    "internlm2",
    biased=_internlm2_biases,
    stored=INTERNLM2_NAMES,
    defaults=DEFAULTS
    | {"vocab_size": 103_168, "intermediate_size": 11_008, "max_position_embeddings": 2048, "bias": True},
)

INTERNLM3 = Family(
    "internlm3",
    biased=llama_biases,
    defaults=DEFAULTS
    | {
        "vocab_size": 128_512,
        "intermediate_size": 10_240,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
    },
)


def _every_layer_or_by_type(config: dict[str, Any], num_layers: int) -> Windows:
    has_types = config.get("layer_types") is not None
    return by_type_whatever_is_used(config, num_layers) if has_types else every_layer(config, num_layers)


_MISTRAL_DEFAULTS = DEFAULTS | {
    "vocab_size": 32_000,
    "intermediate_size": 14_336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
}
MINISTRAL = Family("ministral", windows=_every_layer_or_by_type, defaults=_MISTRAL_DEFAULTS)
MINISTRAL3 = Family(
    "ministral3",
    windows=every_layer,
    scales_queries=True,
    defaults=_MISTRAL_DEFAULTS
    | {
        "vocab_size": 131_072,
        "num_hidden_layers": 34,
        "head_dim": 128,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1_000_000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16_384,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
)


def _seed_oss_biases(config: dict[str, Any]) -> tuple[str, ...]:
    attention = (QKV if config["attention_bias"] else ()) + (("o_proj",) if config["attention_out_bias"] else ())
    return attention + (MLP if config["mlp_bias"] else ())


SEED_OSS = Family(
    "seed_oss",
    biased=_seed_oss_biases,
    defaults=DEFAULTS
    | {
        "vocab_size": 155_136,
        "intermediate_size": 27_648,
        "num_hidden_layers": 64,
        "num_attention_heads": 80,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 524_288,
        "attention_bias": True,
        "attention_out_bias": False,
        "mlp_bias": False,
    },
)


def _exaone4_windows(config: dict[str, Any], num_layers: int) -> Windows:
    """Without `layer_types`, all layers but every n-th have a window."""
    pattern, window = config["sliding_window_pattern"], config["sliding_window"]
    if config.get("layer_types") is not None or window is None:
        return _every_layer_or_by_type(config, num_layers)
    if type(pattern) is not int or pattern < 1:
        raise ValueError(f"sliding_window_pattern must be a positive whole number, and is {shown(pattern)}")
    types = [SLIDING if (layer + 1) % pattern else FULL for layer in range(num_layers)]
    return by_type_whatever_is_used(config | {"layer_types": types}, num_layers)


def _rotates_in_windows(config: dict[str, Any], windows: Windows) -> tuple[bool, ...]:
    """If there are windows, only the layers that have one rotate."""
    return tuple(config["sliding_window"] is None or window is not None for window in windows)


EXAONE4 = Family(
    "exaone4",
    windows=_exaone4_windows,
    rotates=_rotates_in_windows,
    qk_norm=by_head,
    norm_places=lambda config: AFTER,
    defaults=DEFAULTS
    | {
        "vocab_size": 102_400,
        "intermediate_size": 16_384,
        "num_key_value_heads": 32,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
    },
)
ARCEE = Family(
    "arcee",
    biased=llama_biases,
    has_gate=False,
    defaults=DEFAULTS
    | {
        "vocab_size": 32_000,
        "hidden_size": 2560,
        "intermediate_size": 18_432,
        "hidden_act": "relu2",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
    },
)
HUNYUAN_DENSE = Family(
    "hunyuan_v1_dense",
    biased=attention_biases,
    qk_norm=by_head,
    norms_after_rotation=True,
    stretches_base=True,
    stored=HUNYUAN_NAMES,
    defaults=DEFAULTS
    | {
        "vocab_size": 290_943,
        "intermediate_size": 11_008,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
    },
)
