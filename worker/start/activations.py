"""How much memory the largest step needs on a CPU beside weights and KV blocks; a GPU's is measured (warm_up.py)."""

from ..models.config import ModelConfig
from ..steps.logprobs import piece_length
from .memory import Size

_FLOAT = 4
_LOGITS_AT_ONCE = 4  # the model's, their copies for log-probabilities, weights and order while a token is chosen


def reckoned_activations(config: ModelConfig, size: Size, max_model_len: int, ranks: int) -> int:
    """Bytes of the largest step on a CPU, where float32 is what stands between two products."""
    heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    a_token = 4 * config.hidden_size + (2 * heads + 3 * config.intermediate_size) // ranks
    rows = max(size.num_slots, min(piece_length(config.vocab_size), size.max_num_batched_tokens))
    histories = size.num_slots * max_model_len * _FLOAT
    return _FLOAT * (size.max_num_batched_tokens * a_token + _LOGITS_AT_ONCE * rows * config.vocab_size) + histories
