"""silu(first half) × second half of each row. Every number has its result from two others alone."""

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
def gated(gate, up):
    """silu(gate) × up, rounded to their format between the steps, as torch does."""
    wide = gate.to(tl.float32)
    activated = (wide / (1 + tl.exp(-wide))).to(gate.dtype).to(tl.float32)
    return (activated * up.to(tl.float32)).to(gate.dtype)


@triton.jit
def _silu_mul(gate_up, output, width, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=is_inside, other=0)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=is_inside, other=0)
    tl.store(output + row * width + columns, gated(gate, up), mask=is_inside)


@pointwise.silu_mul.implement("triton")
@pointwise.silu_mul_invariant.implement("triton")
def silu_mul(gate_up: Tensor) -> Tensor:
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    output = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        block = min(block_of(width), _LARGEST_BLOCK)
        grid = (rows, triton.cdiv(width, block))
        _silu_mul[grid](gate_up.contiguous(), output, width, BLOCK=block)
    return output


def examples() -> Iterator[Example]:
    types = {"gate_up": "*bf16", "output": "*bf16", "width": "i32"}
    yield Example("silu", _silu_mul, types, {"BLOCK": _LARGEST_BLOCK}, aligned=("gate_up", "output", "width"))
