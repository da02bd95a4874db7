"""How much memory the largest step needs beside weights and KV blocks: measured on a GPU, reckoned on a CPU.

Knows the shapes of a decoder, and of requests only how many there may be.
"""

import torch

from .batch import Batch
from .kv_cache import KVCache
from .logprobs import piece_length
from .memory import Size
from .models.config import ModelConfig
from .models.load import Model

_FLOAT = 4
_LOGITS_AT_ONCE = 4  # the model's, their copies for log-probabilities, weights and order while a token is chosen


def reckoned_activations(config: ModelConfig, size: Size, max_model_len: int, ranks: int) -> int:
    """Bytes of the largest step on a CPU, where float32 is what stands between two products."""
    heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    a_token = 4 * config.hidden_size + (2 * heads + 3 * config.intermediate_size) // ranks
    rows = max(size.num_slots, min(piece_length(config.vocab_size), size.max_num_batched_tokens))
    histories = size.num_slots * max_model_len * _FLOAT
    return _FLOAT * (size.max_num_batched_tokens * a_token + _LOGITS_AT_ONCE * rows * config.vocab_size) + histories


def measured_activations(model: Model, size: Size, block_size: int, max_model_len: int, device: torch.device) -> int:
    """Bytes that one step of the largest size takes on a GPU beyond what stays.

    All its rows write to one and the same block: what they compute is of no interest.
    """
    kv = model.kv_memory(1, block_size)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    hidden = model.forward(_largest_batch(kv, size, max_model_len, device))
    logits = model.logits(hidden, torch.arange(min(size.num_slots, len(hidden)), device=device))
    spare = [torch.empty_like(logits) for _ in range(_LOGITS_AT_ONCE - 1)]
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del kv, hidden, logits, spare
    torch.cuda.empty_cache()
    return peak + size.num_slots * max_model_len * _FLOAT


def _largest_batch(kv: KVCache, size: Size, max_model_len: int, device: torch.device) -> Batch:
    """Prompts as long as may be, until the budget of tokens is used up."""
    length = min(size.max_num_batched_tokens, max_model_len)
    lengths = [length] * min(size.num_slots, size.max_num_batched_tokens // length)
    positions = torch.arange(length, device=device).repeat(len(lengths))
    return Batch(
        token_ids=torch.zeros_like(positions),
        positions=positions,
        query_starts=[row * length for row in range(len(lengths) + 1)],
        context_lengths=lengths,
        block_tables=torch.zeros(len(lengths), -(-length // kv.block_size), dtype=torch.int32, device=device),
        kv_slots=positions % kv.block_size,
        logit_rows=torch.arange(1, len(lengths) + 1, device=device) * length - 1,
        kv=kv,
    )
