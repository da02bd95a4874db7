"""Steps over KV memory, made from a seed, on which all versions of an operation must agree."""

import torch
from builders.operation_examples.attention_inputs import paged_rows, spans_of_three
from torch import Tensor

from penstock.kernels.paged import KV_DTYPES, DeviceRows, PagedKV
from penstock.kernels.reference.paged_attention import in_8_bits


def paged_step(
    shape: list[tuple[int, int]], block_size: int, seed: int, has_spans: bool = False
) -> tuple[DeviceRows, int]:
    """Rows of the given (queries, context), blocks handed out in random order; and the number of blocks."""
    rows, num_blocks = paged_rows(shape, block_size, seed)
    starts, contexts = (torch.tensor(counts, dtype=torch.int32) for counts in (rows.query_starts, rows.context_lengths))
    most = max(queries for queries, _ in shape), max(context for _, context in shape)
    ends = spans_of_three(rows) if has_spans else None
    return DeviceRows(starts, contexts, rows.block_tables, rows.kv_slots, *most, seen_ends=ends), num_blocks


def empty_memory(kind: str, num_blocks: int, num_heads: int, block_size: int, head_dim: int) -> PagedKV:
    """Of NaN, or of scales that are."""
    heads = (num_blocks, block_size, num_heads)
    if kind != "int8":
        return PagedKV(*torch.full((2, *heads, head_dim), torch.nan, dtype=KV_DTYPES[kind]))
    numbers = torch.full((2, *heads, head_dim), -1, dtype=torch.int8)
    return PagedKV(*numbers, *torch.full((2, *heads), torch.nan, dtype=torch.float16))


def memory_of(keys: Tensor, values: Tensor, kind: str) -> PagedKV:
    """Of float32 [blocks, block_size, heads, head_dim] each."""
    if kind != "int8":
        return PagedKV(keys.to(KV_DTYPES[kind]), values.to(KV_DTYPES[kind]))
    (keys, key_scales), (values, value_scales) = in_8_bits(keys), in_8_bits(values)
    return PagedKV(keys, values, key_scales, value_scales)
