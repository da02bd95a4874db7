"""What the configs of all families have in common, and keys that several of them share."""

import math
from typing import Any

from .....protocol.files.gguf.refusals import UNSUPPORTED, MalformedError
from .metadata import ModelMetadata, Row
from .rope import rope

Config = dict[str, Any]
FULL, SLIDING = "full_attention", "sliding_attention"
EMBEDDING, HEAD = "token_embd.weight", "output.weight"


def common_config(given: ModelMetadata) -> Config:
    """Families replace what they have otherwise."""
    hidden, heads = given.count("embedding_length"), max(given.counts("attention.head_count"))
    if heads == 0 or hidden == 0:
        raise MalformedError(f"has {heads} heads and {hidden} numbers a token")
    return {
        "hidden_size": hidden,
        "intermediate_size": max(given.counts("feed_forward_length", given.count("expert_feed_forward_length", 0))),
        "num_hidden_layers": given.num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(given.counts("attention.head_count_kv", heads)),
        "head_dim": head_dim(given),
        "max_position_embeddings": given.count("context_length"),
        "rms_norm_eps": _epsilon(given),
        "vocab_size": given.rows(EMBEDDING),
        "tie_word_embeddings": not given.has_tensor(HEAD),
        **rope(given, given.count("rope.dimension_count", head_dim(given))),
    }


def _epsilon(given: ModelMetadata) -> float:
    other = "attention.layer_norm_epsilon"
    return given.number("attention.layer_norm_rms_epsilon", given.number(other) if given.has(other) else None)


def head_dim(given: ModelMetadata) -> int:
    hidden, heads = given.count("embedding_length"), max(given.counts("attention.head_count"))
    return given.count("attention.key_length", hidden // max(heads, 1))


def rotated_part(given: ModelMetadata) -> Config:
    """The share of each head that rotates, for families in which it may be less than all."""
    whole = head_dim(given)
    count = given.count("rope.dimension_count", whole)
    if not 0 < count <= whole:
        raise MalformedError(f"rotates {count} of a head's {whole} numbers")
    share = count / whole
    return {"partial_rotary_factor": share if int(whole * share) == count else math.nextafter(share, 1)}


def named(architecture: str, model_type: str, **further: Any) -> Config:
    return {"architectures": [architecture], "model_type": model_type, **further}


def plain(architecture: str, model_type: str, **further: Any) -> Row:
    """A family that needs nothing else."""
    return lambda given: named(architecture, model_type, **further)


def attention_bias(given: ModelMetadata) -> Config:
    return {"attention_bias": given.has_in_any_layer("attn_q.bias", "attn_qkv.bias")}


def all_biases(given: ModelMetadata) -> Config:
    """As Llama's configs say it."""
    return attention_bias(given) | {"mlp_bias": given.has_in_any_layer("ffn_up.bias")}


def layer_types(given: ModelMetadata, every: int) -> Config:
    """Which layers have a window, and how large; without a list all but one of so many."""
    window, key = given.count("attention.sliding_window", 0), "attention.sliding_window_pattern"
    slides = given.flags(key)
    if slides is None:
        every = given.count(key, every)
        slides = [every == 0 or (layer + 1) % every != 0 for layer in range(given.num_layers)]
    kinds = [SLIDING if each and window else FULL for each in slides]
    return {"layer_types": kinds, "sliding_window": window or None}


def sparse_layers(given: ModelMetadata) -> list[bool]:
    """Of each layer whether it has experts."""
    return given.has_in_layers("ffn_gate_inp.weight")


def dense_before_sparse(given: ModelMetadata) -> int:
    """The layers without experts, which come first."""
    sparse = sparse_layers(given)
    first = sparse.index(True) if True in sparse else given.num_layers
    if not all(sparse[first:]):
        raise MalformedError("has layers without experts behind those with them, which its family hasn't", UNSUPPORTED)
    return first


def experts(given: ModelMetadata, num_experts: str = "num_experts", width: str = "moe_intermediate_size") -> Config:
    """Their number, how many of them a token gets, and their width; families call the first and last differently."""
    return {
        num_experts: given.count("expert_count"),
        "num_experts_per_tok": given.count("expert_used_count"),
        width: given.count("expert_feed_forward_length", max(given.counts("feed_forward_length", 0))),
    }
