"""Dense families that differ from a Llama by their rotary positions, or by how checkpoints lay tensors out: rows of the
table in `families.py`.
"""

from typing import Any

from ...protocol.fields.rules import shown
from .dense_families import DEFAULTS
from .family import FULL, QKV, SLIDING, Family, Windows, by_type_whatever_is_used, every_layer, llama_biases
from .stored_projections import INTERNLM2_NAMES, QKV_AND_GATE_UP


def _rotates(config: dict[str, Any], num_layers: int) -> tuple[bool, ...]:
    """By `no_rope_layers`, which has a 1 for a layer that does; without it one of so many layers does not."""
    given, interval = config.get("no_rope_layers"), config["no_rope_layer_interval"]
    if given is None:
        if type(interval) is not int or interval < 1:
            raise ValueError(f"no_rope_layer_interval must be a positive whole number, and is {shown(interval)}")
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    if not isinstance(given, list) or len(given) < num_layers or any(each not in (0, 1) for each in given):
        raise ValueError(f"no_rope_layers must have 0 or 1 for each of {num_layers} layers, and is {shown(given)}")
    return tuple(map(bool, given[:num_layers]))


def _windows(config: dict[str, Any], num_layers: int) -> Windows:
    """Without `layer_types`, layers that don't rotate have a window, if it is used."""
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
