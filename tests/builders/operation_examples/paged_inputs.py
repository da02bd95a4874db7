"""Steps over packed memory, made from a seed, on which all versions of an operation must agree.

Knows nothing of how any version computes.
"""

import torch
from builders.operation_examples.attention_inputs import paged_rows
from torch import Tensor

from penstock.kernels.kv_layout import KV_FORMATS
from penstock.kernels.paged import DeviceRows, PagedKV
from penstock.kernels.reference.kv_packing import codes_of, packed_keys, packed_values


def paged_step(shape: list[tuple[int, int]], block_size: int, seed: int) -> tuple[DeviceRows, int]:
    """Rows of the given (queries, context), blocks handed out in random order; and the number of blocks."""
    rows, num_blocks = paged_rows(shape, block_size, seed)
    starts, contexts = (torch.tensor(counts, dtype=torch.int32) for counts in (rows.query_starts, rows.context_lengths))
    most = max(queries for queries, _ in shape), max(context for _, context in shape)
    return DeviceRows(starts, contexts, rows.block_tables, rows.kv_slots, *most), num_blocks


def empty_memory(kind: str, num_blocks: int, num_heads: int, block_size: int, head_dim: int) -> PagedKV:
    """Full of ones in every bit, which as floating point numbers are NaN."""
    form, blocks = KV_FORMATS[kind], (num_blocks, num_heads)
    keys, values = torch.full((2, *blocks, block_size * head_dim * form.bits // 8), 255, dtype=torch.uint8)
    scales: list[Tensor | None] = [None, None]
    if form.scale_parts:
        scales = [torch.full((*blocks, form.scale_parts, block_size), torch.nan, dtype=torch.float16) for _ in range(2)]
    return PagedKV(keys, values, *scales, kind, block_size, head_dim)


def packed_memory(keys: Tensor, values: Tensor, kind: str) -> PagedKV:
    """From plain keys and values, float32 [blocks, heads, block_size, head_dim] each."""
    memory = empty_memory(kind, *keys.shape)
    codes, key_scales = codes_of(keys, kind)
    memory.keys.copy_(packed_keys(codes + 128 if kind == "int8" else codes, kind))
    codes, value_scales = codes_of(values, kind)
    memory.values.copy_(packed_values(codes, kind))
    for held, scales in ((memory.key_scales, key_scales), (memory.value_scales, value_scales)):
        if held is not None and scales is not None:
            held.copy_(scales.transpose(2, 3))
    return memory
