"""Configs as models were published with them, keys and odd values: `published_configs.json`.

Those in `COMPUTED` and `SEEING` have sizes that a test can hold; the others have their own, of which `shrunk` makes
small ones. `PICTURES` are of models that see.
"""

import json
from pathlib import Path
from typing import Any

Configs = dict[str, dict[str, Any]]
_ALL: dict[str, Configs] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
COMPUTED, SEEING, READ, HYBRIDS, PICTURES = (
    _ALL[kind] for kind in ("computed", "seeing", "read", "hybrids", "pictures")
)

# What a model that a test can hold has in place of the published numbers, where it has them at all.
_SMALL: dict[str, Any] = dict(
    hidden_size=64, intermediate_size=80, num_hidden_layers=4, num_attention_heads=4, head_dim=32, vocab_size=307,
    linear_key_head_dim=16, linear_num_key_heads=2, linear_value_head_dim=24, num_experts=8, num_experts_per_tok=3,
    moe_intermediate_size=20, shared_expert_intermediate_size=28, initializer_range=0.2, block_dim=64, conv_dim=64,
    conv_dim_out=64, block_ff_dim=120, block_multiple_of=16, num_heads=4,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
_SMALL_PICTURES = dict(
    depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=64, num_position_embeddings=16
)


def shrunk(config: dict[str, Any]) -> dict[str, Any]:
    """Keep all keys and odd values; shrink sizes to what a test can hold."""
    found = config | {key: value for key, value in _SMALL.items() if key in config}
    if "linear_num_value_heads" in config:  # as many to a key head as published
        found["linear_num_value_heads"] = 2 * config["linear_num_value_heads"] // config["linear_num_key_heads"]
    if "num_key_value_heads" in config:
        found["num_key_value_heads"] = 2 if config["num_key_value_heads"] > 2 else 1
    if "layer_types" in config:
        found["layer_types"] = config["layer_types"][:4]
    if "text_config" in config:
        found |= {"text_config": shrunk(config["text_config"])}
        found |= {"vision_config": config["vision_config"] | _SMALL_PICTURES}
    return found


def verdicts() -> dict[str, tuple[dict[str, Any], int | list[Any] | str]]:
    """Configs by name, each with the context that it runs with, with that and the key that ends it, or with a word
    of what refuses it. In `published_verdicts.json` a config may be `like` another, but for its own keys.
    """
    lines = json.loads(Path(__file__).with_name("published_verdicts.json").read_text(encoding="utf-8"))

    def whole(name: str) -> dict[str, Any]:
        own = lines[name]
        return {**(whole(own["like"]) if "like" in own else {}), **own}

    configs = {name: whole(name) for name in lines}
    return {name: (config, config.pop("expected")) for name, config in configs.items() if config.pop("like", True)}
