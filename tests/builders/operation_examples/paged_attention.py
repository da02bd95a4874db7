"""Examples for kernels/reference/paged_attention.py, made from a seed."""

from collections.abc import Iterator
from itertools import product

import torch
from builders.operation_examples.attention_inputs import sinks_of
from builders.operation_examples.paged_inputs import memory_of, paged_step
from torch import Tensor

from penstock.kernels.paged import KV_DTYPES, DeviceRows, PagedKV

# (queries, context) of each row, query heads, key heads, head_dim, block size, window
_CASES: tuple[tuple[list[tuple[int, int]], int, int, int, int, int | None], ...] = (
    ([(1, 33), (1, 40), (1, 300), (1, 1)], 7, 1, 48, 32, None),
    ([(17, 17), (5, 70), (1, 9)], 4, 2, 32, 16, 11),
)


def inputs(seed: int) -> Iterator[tuple[Tensor, PagedKV, DeviceRows, float, int | None, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    for number, (kind, has_sinks, has_spans) in enumerate(product(KV_DTYPES, (False, True), (False, True))):
        shape, num_heads, num_kv_heads, head_dim, block_size, window = _CASES[(number // 4 + seed) % len(_CASES)]
        rows, num_blocks = paged_step(shape, block_size, seed, has_spans)
        keys, values = torch.randn(2, num_blocks, block_size, num_kv_heads, head_dim, generator=generator)
        query = torch.randn(len(rows.kv_slots), num_heads, head_dim, generator=generator)
        dtype = {"fp32": torch.float32, "fp16": torch.float16}.get(kind, torch.bfloat16)
        sinks = sinks_of(num_heads, generator) if has_sinks else None
        yield query.to(dtype), memory_of(keys, values, kind), rows, head_dim**-0.5, window, sinks
