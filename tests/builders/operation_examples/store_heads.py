"""Examples for kernels/reference/paged_attention.py, made from a seed."""

from collections.abc import Iterator

import torch
from builders.operation_examples.paged_inputs import empty_memory, paged_step
from torch import Tensor

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import KV_DTYPES, DeviceRows, PagedKV, Rotation


def inputs(seed: int) -> Iterator[tuple[Tensor, HeadLayout, Rotation | None, PagedKV, DeviceRows]]:
    generator = torch.Generator().manual_seed(seed)
    shape = [(3, 3), (1, 18), (12, 21)]
    for number, kind in enumerate(KV_DTYPES):
        dtype = (torch.float32, torch.float16, torch.bfloat16)[(number + seed) % 3]
        head_dim, block_size = (24, 16) if number % 2 else (48, 32)
        rows, num_blocks = paged_step(shape, block_size, seed)
        norms = tuple(torch.rand(2, head_dim, generator=generator) + 0.5) if number % 2 else None
        part = 16 if number % 4 == 3 else head_dim
        is_gated = number % 3 == seed % 3
        form = HeadLayout(4, 2, head_dim, number < 3, norms, 1e-6, None, part, is_gated)  # type: ignore[arg-type]
        heads = torch.randn(16, form.num_projected * head_dim, generator=generator).to(dtype)
        angles = torch.rand(32, head_dim, generator=generator) * 6
        cos, sin = angles.cos(), angles.sin()
        cos[:, part:], sin[:, part:] = 1, 0
        positions = torch.cat([torch.arange(context - queries, context) for queries, context in shape])
        kv = empty_memory(kind, num_blocks, 2, block_size, head_dim)
        scales = torch.rand(32, generator=generator) + 1 if kind in ("fp32", "int8") else None
        yield heads, form, Rotation(cos, sin, positions, scales), kv, rows
        if kind == "bf16":
            yield heads, form, None, empty_memory(kind, num_blocks, 2, block_size, head_dim), rows
