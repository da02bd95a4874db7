"""Memory of keys and values to read, and a step's rows in it, for tests of single kernels. Knows no kernel."""

import torch
from torch import Tensor

from penstock.kernels.paged import DeviceRows
from penstock.worker.backends.torch.tensor_cache import DeviceKVCache
from penstock.worker.kv.kv_cache import KVShape

BLOCK_SIZE = 32


def filled_memory(num_tokens: int, num_heads: int, head_dim: int, kind: str, device: str) -> DeviceKVCache:
    """One layer's keys and values of so many tokens, in numbers of usual size."""
    kv = DeviceKVCache.allocate(KVShape(1, num_heads, head_dim), num_tokens // BLOCK_SIZE, BLOCK_SIZE, kind, device)
    for numbers in kv.parts[:2]:
        numbers.random_(-127, 128) if kind == "int8" else numbers.normal_()
    for scales in kv.parts[2:]:
        scales.uniform_(0.005, 0.01)
    return kv


def steps_rows(contexts: list[int], queries: int, device: str) -> DeviceRows:
    """Rows that each compute their last `queries` tokens; the blocks of all are shuffled."""
    counts = [-(-context // BLOCK_SIZE) for context in contexts]
    order = torch.randperm(sum(counts)).int()
    tables = torch.zeros(len(contexts), max(counts), dtype=torch.int32)
    slots: list[Tensor] = []
    for row, (context, own) in enumerate(zip(contexts, order.split(counts), strict=True)):
        tables[row, : len(own)] = own
        positions = torch.arange(context - queries, context)
        slots.append(own.long()[positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE)
    starts = torch.arange(len(contexts) + 1, dtype=torch.int32) * queries
    lengths = torch.tensor(contexts, dtype=torch.int32)
    columns = (each.to(device) for each in (starts, lengths, tables, torch.cat(slots)))
    return DeviceRows(*columns, max_queries=queries, max_context=max(contexts))
