"""Examples for kernels/reference/paged_attention.py, made from a seed."""

from collections.abc import Iterator

import torch
from builders.operation_examples.attention_inputs import sinks_of
from builders.operation_examples.paged_inputs import memory_of, paged_step
from torch import Tensor

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import DeviceRows, PagedKV, Rotation

_QUERIES, _KEYS = 6, 2
_SHAPE = [(1, 33), (1, 40), (1, 600), (1, 1), (1, 17)]


def inputs(seed: int) -> Iterator[tuple[Tensor, HeadLayout, Rotation, PagedKV, DeviceRows, int | None]]:
    generator = torch.Generator().manual_seed(seed)
    for number, kind in enumerate(("fp32", "fp16", "bf16", "bf16")):
        dtype = (torch.float32, torch.float16, torch.bfloat16, torch.float32)[number]
        head_dim, block_size, window = ((24, 16, None), (48, 32, 21))[number % 2]
        rows, num_blocks = paged_step(_SHAPE, block_size, seed)
        rows.are_answers = True
        norms = tuple(torch.rand(2, head_dim, generator=generator) + 0.5) if number % 2 else None
        sinks = sinks_of(_QUERIES, generator) if number >= 2 else None
        form = HeadLayout(_QUERIES, _KEYS, head_dim, number < 2, norms, 1e-6, sinks)  # type: ignore[arg-type]
        heads = torch.randn(len(_SHAPE), (_QUERIES + 2 * _KEYS) * head_dim, generator=generator).to(dtype)
        angles = torch.rand(600, head_dim, generator=generator) * 6
        positions = torch.tensor([context - 1 for _, context in _SHAPE])
        keys, values = torch.randn(2, num_blocks, block_size, _KEYS, head_dim, generator=generator)
        kv = memory_of(keys, values, kind)
        yield heads, form, Rotation(angles.cos(), angles.sin(), positions), kv, rows, window
