"""What becomes of a tile's sums, in the same launch: parts are added, sums are finished, and stored, added or gated.

stored   in the output's format
added    to what the output holds, the product rounded before as if it had been stored
gated    the tile's lines are in turn a gate's and its partner's: silu(gate) × partner, rounded as pointwise.py does
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ...arrival import is_last
from ...pointwise import gated
from ..tiles.tiles import added_parts, finished, row_factors, store_part


class Ending(NamedTuple):
    """Where sums go, and what they meet on their way; what is None is not met."""

    output: tl.tensor
    scales: tl.tensor  # of the weight's lines
    bias: tl.tensor
    partial: tl.tensor  # room for parts: all sums, then all squares; with counters, if there are several
    counters: tl.tensor


@triton.jit
def lines_of_tile(first_output, num_outputs, BLOCK_N: tl.constexpr, IS_GATED: tl.constexpr):
    """Which lines of a weight a tile takes; beyond the last output, that one's again."""
    offsets = tl.arange(0, BLOCK_N)
    if IS_GATED:
        lines = tl.minimum(first_output + offsets // 2, num_outputs - 1) + offsets % 2 * num_outputs
    else:
        lines = tl.minimum(first_output + offsets, num_outputs - 1)
    return lines


@triton.jit
def join_and_end(
    sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, PARTS: tl.constexpr,
    HAS_NORM: tl.constexpr, IS_GATED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Sums [lines, rows] of this program's part of the inputs, and [1, rows] of its rows' squares."""
    if PARTS == 1:
        _end(
            sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, HAS_NORM, IS_GATED, ADDS
        )  # fmt: skip
    else:
        tile = tl.program_id(0)
        store_part(ending.partial, tile, tl.program_id(1), sums, PARTS)
        behind = ending.partial + tl.num_programs(0).to(tl.int64) * (PARTS * sums.numel)
        if HAS_NORM:
            store_part(behind, tile, tl.program_id(1), squares, PARTS)
        if is_last(ending.counters, tile, PARTS):
            sums = added_parts(ending.partial, tile, sums, PARTS)
            if HAS_NORM:
                squares = added_parts(behind, tile, squares, PARTS)
            _end(
                sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, HAS_NORM, IS_GATED,
                ADDS,
            )  # fmt: skip


@triton.jit
def _end(
    sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, HAS_NORM: tl.constexpr,
    IS_GATED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    BLOCK_N: tl.constexpr = sums.shape[0]
    BLOCK_M: tl.constexpr = sums.shape[1]
    BLOCK: tl.constexpr = BLOCK_N // 2 if IS_GATED else BLOCK_N
    TYPE: tl.constexpr = ending.output.dtype.element_ty
    if HAS_NORM:
        sums = sums * row_factors(squares, num_inputs, epsilon)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED)
    results = finished(sums, ending.scales, None, ending.bias, lines).to(TYPE)
    if IS_GATED:
        gate, partner = tl.split(tl.permute(tl.reshape(results, [BLOCK, 2, BLOCK_M]), [0, 2, 1]))
        results = gated(gate, partner, "silu")
    outputs, rows = first_output + tl.arange(0, BLOCK), tl.arange(0, BLOCK_M)
    is_there = (outputs < num_outputs)[:, None] & (rows < num_rows)[None, :]
    offsets = ending.output + rows[None, :] * num_outputs + outputs[:, None]
    if ADDS:
        held = tl.load(offsets, mask=is_there, other=0).to(tl.float32)
        results = (held + results.to(tl.float32)).to(TYPE)
    tl.store(offsets, results, mask=is_there)
