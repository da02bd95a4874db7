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
def _silu_mul(gate_up, output, width, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=is_inside, other=0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=is_inside, other=0).to(tl.float32)
    # Rounded to the rows' format between the steps, as torch does.
    activated = (gate / (1 + tl.exp(-gate))).to(output.dtype.element_ty).to(tl.float32)
    tl.store(output + row * width + columns, (activated * up).to(output.dtype.element_ty), mask=is_inside)


@pointwise.silu_mul.implement("triton")
@pointwise.silu_mul_invariant.implement("triton")
def silu_mul(gate_up: Tensor) -> Tensor:
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    output = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        block = min(block_of(width), _LARGEST_BLOCK)
        _silu_mul[(rows, triton.cdiv(width, block))](gate_up.contiguous(), output, width, BLOCK=block)
    return output


def examples() -> Iterator[Example]:
    types = {"gate_up": "*bf16", "output": "*bf16", "width": "i32"}
    yield Example("silu", _silu_mul, types, {"BLOCK": _LARGEST_BLOCK}, aligned=("gate_up", "output", "width"))
