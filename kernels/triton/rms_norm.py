"""The norm of rows, and the sum before it: one program a row, which it reads once and holds in registers.

Rounds where torch does: the sum to the stream's format, the norm to it, and its product with the weight to it again.
The bits of a row depend on that row alone.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import pointwise
from ..reference import pointwise as stream_reference
from .compiled import Example
from .rows import block_of, warps_of


@triton.jit
def normed(numbers, factors, width, epsilon):
    """Of a whole row, in its own format."""
    wide = numbers.to(tl.float32)
    wide *= tl.rsqrt(tl.sum(wide * wide, 0) / width + epsilon)
    return (wide.to(numbers.dtype).to(tl.float32) * factors.to(tl.float32)).to(numbers.dtype)


@triton.jit
def _norm(stream, update, weight, output, width, weight_rows, epsilon, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    is_inside = columns < width
    factors = tl.load(weight + row % weight_rows * width + columns, mask=is_inside, other=0)
    numbers = tl.load(stream + row * width + columns, mask=is_inside, other=0)
    if update is not None:
        added = tl.load(update + row * width + columns, mask=is_inside, other=0).to(tl.float32)
        numbers = (numbers.to(tl.float32) + added).to(numbers.dtype)
        tl.store(stream + row * width + columns, numbers, mask=is_inside)
    tl.store(output + row * width + columns, normed(numbers, factors, width, epsilon), mask=is_inside)


@stream_reference.add_rms_norm.implement("triton")
def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
    """`stream` is contiguous, since it is changed in place."""
    output = torch.empty_like(stream)
    width = stream.shape[-1]
    if stream.numel():
        block = block_of(width)
        update = None if update is None else update.contiguous()
        arguments = (stream, update, weight, output, width, weight.numel() // width, epsilon)
        grid = (stream.numel() // width,)
        _norm[grid](*arguments, BLOCK=block, num_warps=warps_of(block))
    return output


@pointwise.rms_norm.implement("triton")
@pointwise.rms_norm_invariant.implement("triton")
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return add_rms_norm(x.contiguous(), None, weight, epsilon)


def examples() -> Iterator[Example]:
    for width in (128, 1024, 4096, 12288):
        types = dict.fromkeys(("stream", "update", "weight", "output"), "*bf16")
        types |= {"width": "i32", "weight_rows": "i32", "epsilon": "fp32"}
        block = block_of(width)
        aligned = ("stream", "update", "weight", "output", "width")
        yield Example(f"norm of {width}", _norm, types, {"BLOCK": block}, warps_of(block), aligned=aligned)
