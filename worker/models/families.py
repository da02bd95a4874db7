"""What one model family does otherwise than the next, as rows of a table.

A family that differs in its data flow gets a file beside `decoder.py`; one that differs in a detail gets a field here.
Knows nothing of weights or torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Windows = tuple[int | None, ...]


@dataclass(frozen=True)
class Family:
    """The details of a dense decoder that its config does not spell out."""

    name: str
    # The sliding window of each layer, None where it sees everything.
    windows: Callable[[dict[str, Any], int], Windows] = lambda config, num_layers: (None,) * num_layers
    # The projections that have a bias, needed where weights are made up (in a checkpoint one is found by its presence).
    biased: Callable[[dict[str, Any]], tuple[str, ...]] = lambda config: ()
    qk_norm: bool = False  # each head of query and key is normed before it is rotated
    rotates_pairs: bool = False  # neighbours rotate against one another, not halves
    rope_theta: float = 10_000.0
    max_position_embeddings: int = 32_768  # where the config leaves these two out


def _every_layer(config: dict[str, Any], num_layers: int) -> Windows:
    return (config.get("sliding_window"),) * num_layers


def _layer_types(config: dict[str, Any], num_layers: int) -> Windows:
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    types = config.get("layer_types")
    if types is None:
        first = config.get("max_window_layers", 28)
        types = ["sliding_attention" if layer >= first else "full_attention" for layer in range(num_layers)]
    return tuple(window if kind == "sliding_attention" else None for kind in types)


_QKV = ("q_proj", "k_proj", "v_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")


def _llama_biases(config: dict[str, Any]) -> tuple[str, ...]:
    attention = (*_QKV, "o_proj") if config.get("attention_bias") else ()
    return attention + (_MLP if config.get("mlp_bias") else ())


def _qwen3_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*_QKV, "o_proj") if config.get("attention_bias") else ()


def _ernie_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*_QKV, "o_proj", *_MLP) if config.get("use_bias") else ()


_ERNIE = Family(
    "ernie4_5", biased=_ernie_biases, rotates_pairs=True, rope_theta=500_000.0, max_position_embeddings=131_072
)

# By the name that a config gives under `architectures`.
FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": Family("llama", biased=_llama_biases, max_position_embeddings=2_048),
    "MistralForCausalLM": Family("mistral", windows=_every_layer, max_position_embeddings=131_072),
    "Qwen2ForCausalLM": Family("qwen2", windows=_layer_types, biased=lambda config: _QKV),
    "Qwen3ForCausalLM": Family("qwen3", windows=_layer_types, biased=_qwen3_biases, qk_norm=True),
    "Ernie4_5ForCausalLM": _ERNIE,
    "Ernie4_5_ForCausalLM": _ERNIE,  # as Baidu's own code named it
}
