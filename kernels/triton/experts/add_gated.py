"""total + update × sigmoid(gate), in place, with one gate per row. Rounds where torch does."""

import triton
import triton.language as tl
from torch import Tensor

from ...reference import experts as reference
from ..rows import block_of

_LARGEST_BLOCK = 1024


@triton.jit
def _add_gated(total, update, gate, width, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside, offsets = columns < width, row * width + columns
    factor = (1 / (1 + tl.exp(-tl.load(gate + row).to(tl.float32)))).to(update.dtype.element_ty).to(tl.float32)
    added = tl.load(update + offsets, mask=is_inside, other=0).to(tl.float32) * factor
    added = added.to(update.dtype.element_ty).to(tl.float32)
    held = tl.load(total + offsets, mask=is_inside, other=0).to(tl.float32)
    tl.store(total + offsets, (held + added).to(total.dtype.element_ty), mask=is_inside)


@reference.add_gated.implement("triton")
def add_gated(total: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """`total` is contiguous, since it is changed in place."""
    rows, width = total.shape
    if rows:
        block = min(block_of(width), _LARGEST_BLOCK)
        grid = (rows, triton.cdiv(width, block))
        _add_gated[grid](total, update.contiguous(), gate.contiguous(), width, BLOCK=block)
    return total
