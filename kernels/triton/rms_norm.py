"""Norms of rows, and the sum before them: one program a row, which it reads once and holds in registers.

Rounds where torch does: the sum to the stream's format, the norm to it, and its product with the weight to it again;
a norm that takes off the mean once, in the end.
The bits of a row depend on that row alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import pointwise
from .rows import block_of, warps_of


@triton.jit
def normed(numbers, factors, width, epsilon):
    """The norm of a whole row, in its own format."""
    wide = numbers.to(tl.float32)
    wide *= tl.rsqrt(tl.sum(wide * wide, 0) / width + epsilon)
    return (wide.to(numbers.dtype).to(tl.float32) * factors.to(tl.float32)).to(numbers.dtype)


@triton.jit
def _layer_normed(numbers, is_inside, factors, added, width, epsilon):
    """The same with a norm that takes off the mean; `added` is 0 where there is no bias."""
    wide = numbers.to(tl.float32)
    centred = tl.where(is_inside, wide - tl.sum(wide, 0) / width, 0.0)
    centred *= tl.rsqrt(tl.sum(centred * centred, 0) / width + epsilon)
    return (centred * factors.to(tl.float32) + added).to(numbers.dtype)


@triton.jit
def _norm(
    stream, update, weight, bias, output, width, weight_rows, scale, epsilon, HAS_MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    is_inside = columns < width
    factors = tl.load(weight + row % weight_rows * width + columns, mask=is_inside, other=0)
    numbers = tl.load(stream + row * width + columns, mask=is_inside, other=0)
    if update is not None:
        added = tl.load(update + row * width + columns, mask=is_inside, other=0).to(tl.float32)
        numbers = (numbers.to(tl.float32) + added * scale).to(numbers.dtype)
        tl.store(stream + row * width + columns, numbers, mask=is_inside)
    if HAS_MEAN:
        added = (
            0.0
            if bias is None
            else tl.load(bias + row % weight_rows * width + columns, mask=is_inside, other=0).to(tl.float32)
        )
        result = _layer_normed(numbers, is_inside, factors, added, width, epsilon)
    else:
        result = normed(numbers, factors, width, epsilon)
    tl.store(output + row * width + columns, result, mask=is_inside)


@pointwise.add_rms_norm.implement("triton")
def add_rms_norm(stream: Tensor, update: Tensor | None, weight: Tensor, epsilon: float, scale: float = 1.0) -> Tensor:
    """`stream` is contiguous, since it is changed in place."""
    return _launched(stream, update, weight, None, epsilon, scale, has_mean=False)


@pointwise.add_layer_norm.implement("triton")
def add_layer_norm(
    stream: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor | None, epsilon: float, scale: float = 1.0
) -> Tensor:
    return _launched(stream, update, weight, bias, epsilon, scale, has_mean=True)


def _launched(
    stream: Tensor,
    update: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
    scale: float,
    has_mean: bool,
) -> Tensor:
    output = torch.empty_like(stream)
    width = stream.shape[-1]
    if stream.numel():
        block = block_of(width)
        update = None if update is None else update.contiguous()
        arguments = (stream, update, weight, bias, output, width, weight.numel() // width, scale, epsilon, has_mean)
        grid = (stream.numel() // width,)
        _norm[grid](*arguments, BLOCK=block, num_warps=warps_of(block))
    return output


@pointwise.rms_norm.implement("triton")
@pointwise.rms_norm_invariant.implement("triton")
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return add_rms_norm(x.contiguous(), None, weight, epsilon)


@pointwise.layer_norm.implement("triton")
@pointwise.layer_norm_invariant.implement("triton")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    return add_layer_norm(x.contiguous(), None, weight, bias, epsilon)
