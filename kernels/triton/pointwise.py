"""Changes each number of a row by itself: activation(x), activation(first half) × second half, rows of a table."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..operands import Activation
from ..reference import experts, pointwise
from .rows import block_of

_LARGEST_BLOCK = 1024


@triton.jit
def activated(numbers, ACTIVATION: tl.constexpr):
    """The activation, in float32. gelu with a hyperbolic tangent is x / (1 + e^-2u), u = √(2/π) × (x + 0.044715 x³)."""
    x = numbers.to(tl.float32)
    if ACTIVATION == "silu":
        x = x / (1 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        x = x / (1 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "gelu_sigmoid":
        x = x / (1 + tl.exp(-1.702 * x))
    else:
        x = tl.where(x <= 0, 0.0, x)
        if ACTIVATION == "relu2":
            x = x * x
    return x


@triton.jit
def gated(gate, up, ACTIVATION: tl.constexpr):
    """activation(gate) × up, rounded to their format between the steps, as torch does."""
    opened = activated(gate, ACTIVATION).to(gate.dtype).to(tl.float32)
    return (opened * up.to(tl.float32)).to(gate.dtype)


@triton.jit
def _gate(gate_up, output, width, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < width
    gate = tl.load(gate_up + row * 2 * width + columns, mask=is_inside, other=0)
    up = tl.load(gate_up + row * 2 * width + width + columns, mask=is_inside, other=0)
    tl.store(output + row * width + columns, gated(gate, up, ACTIVATION), mask=is_inside)


@triton.jit
def _activate(x, output, width, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < width
    numbers = tl.load(x + row * width + columns, mask=is_inside, other=0)
    tl.store(output + row * width + columns, activated(numbers, ACTIVATION).to(numbers.dtype), mask=is_inside)


@pointwise.gate.implement("triton")
@pointwise.gate_invariant.implement("triton")
def gate(gate_up: Tensor, activation: Activation) -> Tensor:
    return _launched(_gate, gate_up, gate_up.shape[1] // 2, activation)


@pointwise.apply_activation.implement("triton")
@pointwise.apply_activation_invariant.implement("triton")
def apply_activation(x: Tensor, activation: Activation) -> Tensor:
    return _launched(_activate, x, x.shape[1], activation)


def _launched(kernel: triton.JITFunction, x: Tensor, width: int, activation: Activation) -> Tensor:
    output = torch.empty(len(x), width, dtype=x.dtype, device=x.device)
    if len(x):
        block = min(block_of(width), _LARGEST_BLOCK)
        kernel[len(x), triton.cdiv(width, block)](x.contiguous(), output, width, activation, BLOCK=block)
    return output


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


@triton.jit
def _add_gated(total, update, gate, width, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside, offsets = columns < width, row * width + columns
    factor = (1 / (1 + tl.exp(-tl.load(gate + row).to(tl.float32)))).to(update.dtype.element_ty).to(tl.float32)
    added = tl.load(update + offsets, mask=is_inside, other=0).to(tl.float32) * factor
    added = added.to(update.dtype.element_ty).to(tl.float32)
    held = tl.load(total + offsets, mask=is_inside, other=0).to(tl.float32)
    tl.store(total + offsets, (held + added).to(total.dtype.element_ty), mask=is_inside)


@experts.add_gated.implement("triton")
def add_gated(total: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """total + update × sigmoid(gate) in place, so `total` is contiguous. Rounds where torch does."""
    rows, width = total.shape
    if rows:
        block = min(block_of(width), _LARGEST_BLOCK)
        grid = (rows, triton.cdiv(width, block))
        _add_gated[grid](total, update.contiguous(), gate.contiguous(), width, BLOCK=block)
    return total
