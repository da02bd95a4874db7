"""What headers and configs of all families say, in the header's order. A family's own facts replace what differs."""

from ..refusals import MalformedError
from .facts import Fact, Key, WrittenKey, number
from .model_metadata import Config, ModelMetadata
from .rope import Rope

EMBEDDING, HEAD = "token_embd.weight", "output.weight"


def require_sizes(given: ModelMetadata) -> None:
    """Refuse what all other figures are divided by if it is 0."""
    hidden, heads = given.count("embedding_length"), given.most("attention.head_count")
    if heads == 0 or hidden == 0:
        raise MalformedError(f"has {heads} heads and {hidden} numbers a token")


def _epsilon(given: ModelMetadata) -> float | None:
    other = "attention.layer_norm_epsilon"
    return given.number(other) if given.has(other) else None


def _vocabulary(given: ModelMetadata) -> Config:
    return {"vocab_size": given.rows(EMBEDDING), "tie_word_embeddings": not given.has_tensor(HEAD)}


COMMON: tuple[Fact, ...] = (
    Key("num_hidden_layers", "block_count", lambda given, key, default: given.num_layers),
    Key("max_position_embeddings", "context_length"),
    Key("hidden_size", "embedding_length"),
    Key(
        "intermediate_size",
        "feed_forward_length",
        ModelMetadata.most,
        lambda given: given.count("expert_feed_forward_length", 0),
    ),
    Key("num_attention_heads", "attention.head_count", ModelMetadata.most),
    Key(
        "num_key_value_heads",
        "attention.head_count_kv",
        ModelMetadata.most,
        lambda given: given.most("attention.head_count"),
    ),
    Key("head_dim", "attention.key_length", lambda given, key, default: given.head_dim),
    WrittenKey("head_dim", "attention.value_length"),
    number("rms_norm_eps", "attention.layer_norm_rms_epsilon", _epsilon),
    WrittenKey("rotary_dim", "rope.dimension_count"),
    WrittenKey("rope_theta", "rope.freq_base"),
    WrittenKey("vocab_size", "vocab_size"),
    _vocabulary,
    Rope(),
)
