"""Rows of a table, and zeros for ids that lie outside of this rank's part of it."""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import pointwise
from .compiled import Example
from .rows import block_of

_LARGEST_BLOCK = 1024


@triton.jit
def _embedding(token_ids, table, output, first, num_ids, width, BLOCK: tl.constexpr):
    token, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    local = tl.load(token_ids + token).to(tl.int64) - first
    is_there = (local >= 0) & (local < num_ids)
    numbers = tl.load(table + local * width + columns, mask=(columns < width) & is_there, other=0)
    tl.store(output + token * width + columns, numbers, mask=columns < width)


@pointwise.embedding.implement("triton")
def embedding(token_ids: Tensor, table: Tensor, first: int, scale: float = 1.0) -> Tensor:
    tokens, (num_ids, width) = token_ids.shape[0], table.shape
    output = torch.empty(tokens, width, dtype=table.dtype, device=table.device)
    if tokens:
        block = min(block_of(width), _LARGEST_BLOCK)
        grid = (tokens, triton.cdiv(width, block))
        arguments = (token_ids, table.contiguous(), output, first, num_ids, width)
        _embedding[grid](*arguments, BLOCK=block)
    return output if scale == 1.0 else output.mul_(scale)


def examples() -> Iterator[Example]:
    types = {"token_ids": "*i64", "table": "*bf16", "output": "*bf16", "first": "i32", "num_ids": "i32", "width": "i32"}
    aligned = ("token_ids", "table", "output", "width")
    yield Example("embedding", _embedding, types, {"BLOCK": _LARGEST_BLOCK}, aligned=aligned)
