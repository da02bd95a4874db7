"""Which layers of a mixture are sparse, by the keys of each family's config, and the reading of such keys."""

import math
from collections.abc import Callable
from typing import Any

from ....protocol.fields.rules import shown

# Whether each layer has experts.
SparseLayers = Callable[[dict[str, Any], int], list[bool]]


def every_layer(config: dict[str, Any], num_layers: int) -> list[bool]:
    return [True] * num_layers


def every_nth_layer(config: dict[str, Any], num_layers: int) -> list[bool]:
    """Sparse layers by Qwen's keys."""
    dense, step = config.get("mlp_only_layers") or [], whole(config, "decoder_sparse_step", 1)
    if not isinstance(dense, list):
        raise ValueError(f"mlp_only_layers must be a list of layers' numbers, and is {shown(dense)}")
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(num_layers)]


def from_start_to_end(config: dict[str, Any], num_layers: int) -> list[bool]:
    """Sparse layers by ERNIE's keys."""
    start, end = whole(config, "moe_layer_start_index"), whole(config, "moe_layer_end_index", -1)
    interval = whole(config, "moe_layer_interval", 1)
    end = num_layers - 1 if end == -1 else end
    return [(layer + 1) % interval == 0 and start <= layer <= end for layer in range(num_layers)]


def ernie_vl_layers(config: dict[str, Any], num_layers: int) -> list[bool]:
    """Sparse layers by transformers' key, or by those of ERNIE's published configs."""
    types = config.get("mlp_layer_types")
    return from_start_to_end(config, num_layers) if types is None else _of_types(types, num_layers)


def after_dense_layers(config: dict[str, Any], num_layers: int) -> list[bool]:
    """Sparse layers by the keys of DeepSeek and GLM."""
    if config.get("moe_layer_freq", 1) != 1:
        raise ValueError(f"moe_layer_freq is {shown(config['moe_layer_freq'])}, and only 1 is supported")
    first = whole(config, "first_k_dense_replace")
    return [layer >= first for layer in range(num_layers)]


def by_mlp_types(config: dict[str, Any], num_layers: int) -> list[bool]:
    """Sparse layers by transformers' key, for families whose published configs use DeepSeek's."""
    after_dense, types = after_dense_layers(config, num_layers), config.get("mlp_layer_types")
    return after_dense if types is None else _of_types(types, num_layers)


def _of_types(types: Any, num_layers: int) -> list[bool]:
    if not isinstance(types, list) or len(types) != num_layers or not set(types) <= {"dense", "sparse"}:
        raise ValueError(f"mlp_layer_types must have dense or sparse for each of {num_layers} layers: {shown(types)}")
    return [kind == "sparse" for kind in types]


def after_plain_layers(config: dict[str, Any], num_layers: int) -> list[bool]:
    """Sparse layers by LFM2's keys."""
    first = whole(config, "num_dense_layers")
    return [layer >= first for layer in range(num_layers)]


# --- values of keys --------------------------------------------------------------------------------------------------


def whole(config: dict[str, Any], key: str, least: int = 0) -> int:
    value = config[key]
    if type(value) is not int or value < least:
        raise ValueError(f"{key} must be a whole number, {least} or more, and is {shown(value)}")
    return value


def number(config: dict[str, Any], key: str) -> float:
    value = config[key]
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{key} must be a number, 0 or more, and is {shown(value)}")
    return float(value)
