"""The causal convolution and the gated norm of layers that keep states, on a GPU.

A program of the convolution takes some channels of one row through all its segments, some tokens at a time, and reads
each state where the segment before it left it. A token's bits know nothing of how a row is cut.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import states as formulas
from ..states import LayerStates, Segments, StateActivation
from .rows import block_of, warps_of

_CHANNELS, _TOKENS = 64, 16  # of a program, at a time


@triton.jit
def _silu(x):
    return x / (1 + tl.exp(-x))


@triton.jit
def _input(x, states, read, begin, number, columns, is_inside, channels, state_stride, WIDTH: tl.constexpr):
    """Inputs of a segment, counted from the first one that the state before it holds."""
    own = x + (begin + number - (WIDTH - 1)) * channels + columns
    kept = states + read.to(tl.int64) * state_stride + number * channels + columns
    found = tl.load(own, mask=is_inside & (number >= WIDTH - 1), other=0).to(tl.float32)
    return found + tl.load(kept, mask=is_inside & (read >= 0) & (number < WIDTH - 1), other=0)


@triton.jit(do_not_specialize=["channels", "state_stride"])
def convolution_kernel(
    x, weight, bias, states, starts, reads, writes, of_rows, output, channels, state_stride, WIDTH: tl.constexpr,
    HAS_SILU: tl.constexpr, BLOCK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    channels = channels.to(tl.int64)
    is_inside = columns < channels
    added = tl.zeros((TOKENS, BLOCK), tl.float32)
    if bias is not None:
        added += tl.load(bias + columns, mask=is_inside, other=0).to(tl.float32)
    for segment in range(tl.load(of_rows + row), tl.load(of_rows + row + 1)):
        begin, end = tl.load(starts + segment), tl.load(starts + segment + 1)
        read, write = tl.load(reads + segment), tl.load(writes + segment)
        for first in range(begin, end, TOKENS):
            tokens, total = first + tl.arange(0, TOKENS)[:, None], added
            is_there = is_inside & (tokens < end)
            for tap in tl.static_range(WIDTH):
                factor = tl.load(weight + columns * WIDTH + tap, mask=is_inside, other=0).to(tl.float32)
                number = tokens - begin + tap
                found = _input(x, states, read, begin, number, columns, is_there, channels, state_stride, WIDTH)
                total += found * factor
            if HAS_SILU:
                total = _silu(total)
            tl.store(output + tokens * channels + columns, total.to(output.dtype.element_ty), mask=is_there)
        tl.debug_barrier()  # all have read the state that may be overwritten
        for i in tl.static_range(WIDTH - 1):
            number = end - begin + i
            found = _input(x, states, read, begin, number, columns, is_inside, channels, state_stride, WIDTH)
            to = states + write.to(tl.int64) * state_stride + i * channels + columns
            tl.store(to, found, mask=is_inside)
        tl.debug_barrier()


@formulas.causal_convolution.implement("triton")
def causal_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: StateActivation,
    states: LayerStates,
    segments: Segments,
) -> Tensor:
    x, (channels, width) = x.contiguous(), weight.shape
    output = torch.empty_like(x)
    grid = (len(segments.of_rows) - 1, triton.cdiv(channels, _CHANNELS))
    convolution_kernel[grid](
        x, weight.contiguous(), bias, states.convolved, segments.starts, segments.reads, segments.writes,
        segments.of_rows, output, channels, states.convolved.stride(0), width, activation == "silu", _CHANNELS,
        _TOKENS,
    )  # fmt: skip
    return output


@triton.jit
def gated_norm_kernel(x, gate, weight, output, epsilon, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """A program: one head of one row."""
    columns = tl.arange(0, BLOCK)
    is_inside, at = columns < SIZE, tl.program_id(0).to(tl.int64) * SIZE + columns
    head = tl.load(x + at, mask=is_inside, other=0).to(tl.float32)
    head *= tl.rsqrt(tl.sum(head * head, 0) / SIZE + epsilon)
    factors = tl.load(weight + columns, mask=is_inside, other=0).to(tl.float32)
    through = _silu(tl.load(gate + at, mask=is_inside, other=0).to(tl.float32))
    tl.store(output + at, (head * factors * through).to(output.dtype.element_ty), mask=is_inside)


@formulas.gated_norm.implement("triton")
def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, epsilon: float, num_heads: int) -> Tensor:
    x, gate, size = x.contiguous(), gate.contiguous(), x.shape[1] // num_heads
    output, block = torch.empty_like(x), block_of(size)
    if len(x):
        grid = (len(x) * num_heads,)
        gated_norm_kernel[grid](x, gate, weight, output, epsilon, size, block, num_warps=warps_of(block))
    return output
