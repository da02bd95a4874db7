"""A layer that keeps states on a GPU, in the simplest form: its convolution, its gated delta net and its gated norm.

A program of the first two takes some columns of one row through all its segments, token by token, and reads each state
where the segment before it left it. A token's bits know nothing of how a row is cut.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import states as formulas
from ..states import DeltaHeads, LayerStates, Segments, StateActivation
from .rows import block_of, warps_of

_CHANNELS, _COLUMNS = 128, 32  # of a program
_SMALLEST_SQUARE, _LINEAR_FROM = tl.constexpr(formulas.SMALLEST_SQUARE), tl.constexpr(formulas.LINEAR_FROM)


@triton.jit
def _silu(x):
    return x / (1 + tl.exp(-x))


@triton.jit
def _input(x, states, read, begin, number, columns, is_inside, channels, state_stride, WIDTH: tl.constexpr):
    """Inputs of a segment, counted from the first one that the state before it holds."""
    is_own = number >= WIDTH - 1
    own = x + (begin + number - (WIDTH - 1)) * channels + columns
    kept = states + read.to(tl.int64) * state_stride + number * channels + columns
    found = tl.load(own, mask=is_inside & is_own, other=0).to(tl.float32)
    return found + tl.load(kept, mask=is_inside & (read >= 0) & (number < WIDTH - 1), other=0)


@triton.jit(do_not_specialize=["channels", "state_stride"])
def convolution_kernel(
    x, weight, bias, states, starts, reads, writes, of_rows, output, channels, state_stride, WIDTH: tl.constexpr,
    HAS_SILU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channels = channels.to(tl.int64)
    is_inside = columns < channels
    added = tl.zeros((BLOCK,), tl.float32)
    if bias is not None:
        added += tl.load(bias + columns, mask=is_inside, other=0).to(tl.float32)
    for segment in range(tl.load(of_rows + row), tl.load(of_rows + row + 1)):
        begin, end = tl.load(starts + segment), tl.load(starts + segment + 1)
        read, write = tl.load(reads + segment), tl.load(writes + segment)
        for token in range(begin, end):
            total = added
            for tap in tl.static_range(WIDTH):
                factor = tl.load(weight + columns * WIDTH + tap, mask=is_inside, other=0).to(tl.float32)
                number = token - begin + tap
                found = _input(x, states, read, begin, number, columns, is_inside, channels, state_stride, WIDTH)
                total += found * factor
            if HAS_SILU:
                total = _silu(total)
            tl.store(output + token * channels + columns, total.to(output.dtype.element_ty), mask=is_inside)
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
    )  # fmt: skip
    return output


@triton.jit
def _unit(x):
    return x * tl.rsqrt(tl.sum(x * x, 0) + _SMALLEST_SQUARE)


@triton.jit
def _kept(a, log_decay):
    """The share of the state that is kept from one token to the next."""
    softplus = tl.where(a > _LINEAR_FROM, a, tl.log(1 + tl.exp(tl.minimum(a, _LINEAR_FROM))))
    return tl.exp(-tl.exp(log_decay) * softplus)


@triton.jit(do_not_specialize=["state_stride"])
def delta_net_kernel(
    convolved, b, a, log_decay, step_bias, states, starts, reads, writes, of_rows, output, state_stride, scale,
    NUM_KEY_HEADS: tl.constexpr, NUM_VALUE_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    keys, columns = tl.arange(0, triton.next_power_of_2(KEY_DIM)), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    is_key, is_inside = keys < KEY_DIM, columns < VALUE_DIM
    is_number = is_key[:, None] & is_inside[None, :]
    key_head, key_width = head // (NUM_VALUE_HEADS // NUM_KEY_HEADS), NUM_KEY_HEADS * KEY_DIM
    offsets = head * (KEY_DIM * VALUE_DIM) + keys[:, None] * VALUE_DIM + columns[None, :]
    decay, added = tl.load(log_decay + head).to(tl.float32), tl.load(step_bias + head).to(tl.float32)
    for segment in range(tl.load(of_rows + row), tl.load(of_rows + row + 1)):
        begin, end = tl.load(starts + segment), tl.load(starts + segment + 1)
        read, write = tl.load(reads + segment), tl.load(writes + segment)
        before = states + read.to(tl.int64) * state_stride + offsets
        state = tl.load(before, mask=is_number & (read >= 0), other=0)
        for number in range(begin, end):
            token = number + tl.zeros((), tl.int64)
            own = convolved + token * (2 * key_width + NUM_VALUE_HEADS * VALUE_DIM)
            query = tl.load(own + key_head * KEY_DIM + keys, mask=is_key, other=0).to(tl.float32)
            key = tl.load(own + key_width + key_head * KEY_DIM + keys, mask=is_key, other=0).to(tl.float32)
            value = tl.load(own + 2 * key_width + head * VALUE_DIM + columns, mask=is_inside, other=0).to(tl.float32)
            query, key = _unit(query) * scale, _unit(key)
            rate = 1 / (1 + tl.exp(-tl.load(b + token * NUM_VALUE_HEADS + head).to(tl.float32)))
            state *= _kept(tl.load(a + token * NUM_VALUE_HEADS + head).to(tl.float32) + added, decay)
            change = (value - tl.sum(state * key[:, None], 0)) * rate
            state += key[:, None] * change[None, :]
            to = output + (token * NUM_VALUE_HEADS + head) * VALUE_DIM + columns
            tl.store(to, tl.sum(state * query[:, None], 0).to(output.dtype.element_ty), mask=is_inside)
        tl.store(states + write.to(tl.int64) * state_stride + offsets, state, mask=is_number)
        tl.debug_barrier()


@formulas.delta_net.implement("triton")
def delta_net(
    convolved: Tensor, b: Tensor, a: Tensor, heads: DeltaHeads, states: LayerStates, segments: Segments
) -> Tensor:
    convolved, b, a = convolved.contiguous(), b.contiguous(), a.contiguous()
    output = convolved.new_empty(len(convolved), heads.num_value_heads * heads.value_dim)
    grid = (len(segments.of_rows) - 1, heads.num_value_heads, triton.cdiv(heads.value_dim, _COLUMNS))
    delta_net_kernel[grid](
        convolved, b, a, heads.log_decay, heads.step_bias, states.recurrent, segments.starts, segments.reads,
        segments.writes, segments.of_rows, output, states.recurrent.stride(0), heads.key_dim**-0.5,
        heads.num_key_heads, heads.num_value_heads, heads.key_dim, heads.value_dim, _COLUMNS,
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
