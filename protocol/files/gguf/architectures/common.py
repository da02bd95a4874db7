"""Keys in headers and configs of all families, in the header's order. A family's own facts override them."""

from ..refusals import MalformedError
from .facts import Fact, Key, number
from .model_metadata import Config, ModelMetadata
from .rope import Rope

EMBEDDING, HEAD = "token_embd.weight", "output.weight"


def _sizes(given: ModelMetadata) -> Config:
    """Raise if the hidden size or the number of heads is 0."""
    hidden, heads = given.count("embedding_length"), _num_heads(given)
    if heads == 0 or hidden == 0:
        raise MalformedError(f"has {heads} heads and {hidden} numbers a token")
    return {}


def _num_heads(given: ModelMetadata) -> int:
    return given.most("attention.head_count")


def _width_of_experts(given: ModelMetadata) -> int:
    return given.count("expert_feed_forward_length", 0)


def _epsilon(given: ModelMetadata) -> float | None:
    other = "attention.layer_norm_epsilon"
    return given.number(other) if given.has(other) else None


def _vocabulary(given: ModelMetadata) -> Config:
    return {"vocab_size": given.rows(EMBEDDING), "tie_word_embeddings": not given.has_tensor(HEAD)}


COMMON: tuple[Fact, ...] = (
    _sizes,
    Key("num_hidden_layers", "block_count", lambda given, key, default: given.num_layers),
    Key("max_position_embeddings", "context_length"),
    Key("hidden_size", "embedding_length"),
    Key("intermediate_size", "feed_forward_length", ModelMetadata.most, _width_of_experts),
    Key("num_attention_heads", "attention.head_count", ModelMetadata.most),
    Key("num_key_value_heads", "attention.head_count_kv", ModelMetadata.most, _num_heads),
    Key("head_dim", "attention.key_length", lambda given, key, default: given.head_dim),
    Key("head_dim", "attention.value_length", is_read=False),
    number("rms_norm_eps", "attention.layer_norm_rms_epsilon", _epsilon),
    Key("rotary_dim", "rope.dimension_count", is_read=False),
    Key("rope_theta", "rope.freq_base", is_read=False),
    Key("vocab_size", "vocab_size", is_read=False),
    _vocabulary,
    Rope(),
)
