"""Products of very many rows with 8-bit or 4-bit weights, or blocks: they become floats for a moment, for cuBLAS.

Where rows are a thousand or more, a prompt's product is bound by multiplications, of which a library's kernel for
floats does more in a second than one that unpacks weights on the way. Writing the floats down costs as much as reading
them once. They are rounded to x's format, which the other products don't.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from ...reference import products
from ...torch.packed.gpu_blocks import RUN, SPAN, GpuBlocks
from ...torch.packed.gpu_weights import GpuWeight
from ..launch.switches import DEQUANTIZED_PRODUCTS
from .tiles.part_sums import as_kernels_take_it
from .tiles.part_sums_blocks import block_lines, codes_of_pair, numbers_of_run, plane_of, words_of

_LEAST_ROWS = 1024
_BLOCK = 1024  # bytes of a line that a program reads
_LINES = 32  # of which a program reads a span of blocks
_RUN, _SPAN = tl.constexpr(RUN), tl.constexpr(SPAN)


@triton.jit
def _floats_of_int8(values, scales, output, inputs, BLOCK: tl.constexpr):
    line, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.load(values + line * inputs + columns, mask=columns < inputs, other=0).to(tl.float32)
    floats = numbers * tl.load(scales + line)
    tl.store(output + line * inputs + columns, floats.to(output.dtype.element_ty), mask=columns < inputs)


@triton.jit
def _floats_of_int4(
    values, scales, zeros, output, inputs, groups, GROUP: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    line, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    octets = tl.cdiv(inputs, 2 * HALF) * HALF
    bytes = tl.load(values + line * octets + columns, mask=columns < octets, other=0).to(tl.int32)
    lower = columns // HALF * (2 * HALF) + columns % HALF
    for half in tl.static_range(2):
        own = lower + half * HALF
        group, is_input = line * groups + own // GROUP, own < inputs
        scale = tl.load(scales + group, mask=is_input, other=0).to(tl.float32)
        zero = tl.full([BLOCK], 8, tl.int32)
        if zeros is not None:
            zero = tl.load(zeros + group, mask=is_input, other=0).to(tl.int32)
        floats = ((bytes >> 4 * half & 15) - zero).to(tl.float32) * scale
        tl.store(output + line * inputs + own, floats.to(output.dtype.element_ty), mask=is_input)


@triton.jit
def _floats_of_blocks(weight, output, outputs, inputs, FORM: tl.constexpr, LINES: tl.constexpr):
    """A span of some lines."""
    span, lines = tl.program_id(1), tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)
    own = tl.minimum(lines, outputs - 1)
    starts = block_lines(own, inputs, FORM)
    words, above = words_of(weight, starts, span, FORM), plane_of(weight, starts, span, FORM)
    for pair in tl.static_range(2):
        codes = codes_of_pair(weight, starts, above, span, pair, FORM)
        for side in tl.static_range(2):
            run = 2 * pair + side
            floats = numbers_of_run(codes[side], weight, words, run, FORM)
            columns = (span * _SPAN + run * _RUN + tl.arange(0, _RUN))[None, :]
            is_there = (lines < outputs)[:, None] & (columns < inputs)
            tl.store(output + own[:, None] * inputs + columns, floats.to(output.dtype.element_ty), mask=is_there)


@products.linear_dequantized.implement("triton")
def linear_dequantized(x: Tensor, weight: GpuWeight, bias: Tensor | None) -> Tensor:
    floats = torch.empty(weight.out_features, weight.in_features, dtype=x.dtype, device=x.device)
    grid = (weight.out_features, triton.cdiv(weight.values.shape[1], _BLOCK))
    options = {"BLOCK": _BLOCK}
    if isinstance(weight, GpuBlocks):
        grid = (triton.cdiv(weight.out_features, _LINES), triton.cdiv(weight.in_features, SPAN))
        tensors, form = as_kernels_take_it(weight)
        _floats_of_blocks[grid](tensors, floats, weight.out_features, weight.in_features, FORM=form, LINES=_LINES)
    elif weight.kind == "int4" and weight.scales is not None:
        sizes = (weight.in_features, weight.scales.shape[1], weight.group_size, weight.half)
        _floats_of_int4[grid](weight.values, weight.scales, weight.zeros, floats, *sizes, **options)
    else:
        _floats_of_int8[grid](weight.values, weight.scales, floats, weight.in_features, **options)
    x = x if weight.order is None else x.index_select(1, weight.order)
    return F.linear(x, floats, None if bias is None else bias.to(x.dtype))


def serves(x: Tensor) -> bool:
    """Whether rows are so many that their product is bound by multiplications."""
    return len(x) >= _LEAST_ROWS and DEQUANTIZED_PRODUCTS.is_on
