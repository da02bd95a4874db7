"""Defines a row of the table of families, and the rules that rows are made of.

A family that differs in its data flow gets a file in `worker/layers/`; one that differs in a detail gets a field here.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal

from ....protocol.fields.rules import shown
from ....records import dataclass
from ..parts.heads import Heads, alike
from ..parts.mixers import Mixers, attention_everywhere
from ..parts.mixtures import Mixture
from ..parts.norms import BEFORE, RMS, NormForm, NormPlaces
from ..parts.rope import Axes
from ..parts.scales import Scales, unscaled
from ..parts.stored_names import AS_LLAMA, USUAL, PartNames, StoredProjections
from ..parts.text_embedding import TextEmbedding

Windows = tuple[int | None, ...]
# Queries and keys are normalized head by head, with one weight for all heads or with one for each, in one tensor or
# in one per head; or all heads of a token together.
QKNorm = Literal["by head", "each head its own", "each head its own tensor", "together"] | None

FULL, SLIDING = _KINDS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class Family:
    """The details of a decoder that its config does not spell out."""

    name: str
    # The sliding window of each layer, None where it sees everything.
    windows: Callable[[dict[str, Any], int], Windows] = lambda config, num_layers: (None,) * num_layers
    # The projections that have a bias, needed for dummy weights (a checkpoint's biases are found by their presence).
    biased: Callable[[dict[str, Any]], tuple[str, ...]] = lambda config: ()
    # Whether queries and keys are normalized before rotation: head by head, or all heads of a token together.
    qk_norm: Callable[[dict[str, Any]], QKNorm] = lambda config: None
    qk_norm_name: str = "{}_norm"  # in the checkpoint, for "q" and "k"
    norm: NormForm = RMS
    norm_places: Callable[[dict[str, Any]], NormPlaces] = lambda config: BEFORE
    activation: str = "hidden_act"  # the key that names it
    meant_activations: dict[str, str] = field(default_factory=dict)  # names that mean a different activation here
    has_gate: bool = True  # in the MLP
    scales: Callable[[dict[str, Any]], Scales] = unscaled
    clamps_qkv: bool = False  # a config may clamp queries, keys and values
    has_sinks: bool = False  # each query head has an extra logit in the softmax
    rotates_pairs: bool = False  # rotary embeddings pair neighbouring elements instead of halves
    rotates_part: bool = False  # a config may rotate only part of each head
    rotated: str | None = None  # the key that gives this part as a number of elements
    gates_attention: bool = False  # a gate follows each query, for the output of its head
    names: PartNames = USUAL  # of a layer's parts in the checkpoint
    mlp_width: Callable[[dict[str, Any]], int] | None = None  # None: it is what the config gives
    mixers: Mixers = attention_everywhere  # what replaces attention in each layer
    heads: Heads = alike  # key-value heads of each layer
    norms_values: bool = False  # head by head, without a weight
    widens_readers: bool = False  # a config may double the MLPs of layers that read another layer's keys
    ends_full: bool = False  # the last layer sees everything, whatever layer_types says
    has_token_inputs: bool = False  # a config may give each layer its own token embedding
    scales_layers: bool = False  # the stream is multiplied by a stored number after each layer
    norms_after_rotation: bool = False  # the query and key norms
    # Assigns angles to time, height and width for tokens that have all three; and the usual sections.
    axes: tuple[Axes, list[int]] | None = None
    stretches_base: bool = False  # dynamic rope may have an `alpha` that scales the base once for all lengths
    rope_kinds: dict[str, str] | None = None  # accepted rope types and their meanings; None: all
    scales_queries: bool = False  # a config may scale queries by their position
    # Whether each layer rotates queries and keys at all.
    rotates: Callable[[dict[str, Any], Windows], tuple[bool, ...]] = lambda config, windows: (True,) * len(windows)
    ropes_by_kind: bool = False  # layers with and without a window have separate rope parameters
    window_theta: tuple[str, float] | None = None  # the key for the base of windowed layers, and its default
    has_whole_context: bool = False  # max_position_embeddings is the context after all stretching
    mixture: Mixture | None = None  # of the sparse layers, if any
    is_latent: bool = False  # every head's key and value come from one small vector per token (MLA)
    rope_theta: float = 10_000.0  # if the config leaves it out
    stored: StoredProjections = AS_LLAMA  # how checkpoints name and fuse projections
    is_two_sided: bool = False  # tokens see those after them as well
    text_embedding: Callable[[dict[str, Any]], TextEmbedding] | None = None  # of an encoder of texts
    # Defaults of transformers' class for the family.
    defaults: dict[str, Any] = field(default_factory=dict)


def every_layer(config: dict[str, Any], num_layers: int) -> Windows:
    return (config["sliding_window"],) * num_layers


def _used_window(config: dict[str, Any]) -> Any:
    """Read both keys in any case: an unused window is understood, not overlooked."""
    window, is_used = config["sliding_window"], config.get("use_sliding_window")
    return window if is_used else None


def layer_types(config: dict[str, Any], num_layers: int) -> Windows:
    window = _used_window(config)
    types = config.get("layer_types")
    if types is None:
        first = config["max_window_layers"]
        types = [SLIDING if layer >= first else FULL for layer in range(num_layers)]
    if unknown := next((kind for kind in types if kind not in _KINDS), None):
        raise ValueError(f"layer_types has {shown(unknown)}, and only {' and '.join(_KINDS)} are supported")
    return tuple(window if kind == SLIDING else None for kind in types)


def by_head(config: dict[str, Any]) -> QKNorm:
    return "by head"


def together(config: dict[str, Any]) -> QKNorm:
    return "together"


def every_second_layer(config: dict[str, Any], num_layers: int) -> Windows:
    """Qwen2-MoE without `layer_types`: windows in layers with an even number, among the first ones only."""
    if config.get("layer_types") is None:
        first = [layer % 2 == 0 and layer < config["max_window_layers"] for layer in range(num_layers)]
        config = config | {"layer_types": [_KINDS[is_sliding] for is_sliding in first]}
    return layer_types(config, num_layers)


def sliding_first(config: dict[str, Any], num_layers: int) -> Windows:
    """gpt-oss without `layer_types`: layers with and without a window alternate."""
    types = config.get("layer_types") or [_KINDS[(layer + 1) % 2] for layer in range(num_layers)]
    return layer_types(config | {"layer_types": types, "use_sliding_window": True}, num_layers)


def sliding_but_every(pattern: str | None, default: int) -> Callable[[dict[str, Any], int], Windows]:
    """Without `layer_types`, every n-th layer has no window; older configs give n."""

    def windows(config: dict[str, Any], num_layers: int) -> Windows:
        types, every = config.get("layer_types"), config.get(pattern) if pattern else None
        if types is None:
            every = default if every is None else every
            if type(every) is not int or every < 1:
                raise ValueError(f"{pattern} must be a positive whole number, and is {shown(every)}")
            types = [SLIDING if (layer + 1) % every else FULL for layer in range(num_layers)]
        return by_type_whatever_is_used(config | {"layer_types": types}, num_layers)

    return windows


def sliding_but_the_last(config: dict[str, Any], num_layers: int) -> Windows:
    """The last layer has no window, whatever the config says."""
    return (*sliding_but_every(None, 6)(config, num_layers)[:-1], None)


def by_type_whatever_is_used(config: dict[str, Any], num_layers: int) -> Windows:
    """Windows by `layer_types`, for families whose class ignores `use_sliding_window`."""
    return layer_types(config | {"use_sliding_window": True}, num_layers)


def softmax_in_every_layer(config: dict[str, Any], num_layers: int) -> Windows:
    """Accept MiniMax's `attn_type_list` if every layer has softmax attention."""
    if any(kind != 1 for kind in config.get("attn_type_list") or []):
        raise ValueError("attn_type_list has linear attention, and only softmax (1) is supported")
    return (None,) * num_layers


def window_if_used(config: dict[str, Any], num_layers: int) -> Windows:
    return (_used_window(config),) * num_layers


QKV = ("q_proj", "k_proj", "v_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def llama_biases(config: dict[str, Any]) -> tuple[str, ...]:
    attention = (*QKV, "o_proj") if config.get("attention_bias") else ()
    return attention + (MLP if config.get("mlp_bias") else ())


def attention_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*QKV, "o_proj") if config.get("attention_bias") else ()


def qkv_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return QKV if config.get("attention_bias") else ()


def ernie_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return (*QKV, "o_proj", *MLP) if config.get("use_bias") else ()


def latent_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return ("q_a_proj", "kv_a_proj_with_mqa", "o_proj") if config.get("attention_bias") else ()


def deepseek_v2_biases(config: dict[str, Any]) -> tuple[str, ...]:
    return latent_biases(config) + (MLP if config.get("mlp_bias") else ())
