"""What the products' kernels share: where a program's tile lies, how its sums become outputs, and their launch.

A program computes a tile [outputs, rows] of the product: weights come first, because they are what a decode step has
many of, and matrix units want many of the first. The inputs are cut into PARTS; parts are summed each by itself and
then added in ascending order: of many rows by one program; of few, whose tiles would leave the GPU idle, by the last of
several. Both ways add the same numbers in the same order; a row's bits don't tell which it was.

A norm of the rows is computed on the way: the product uses x times the norm's weight, the squares of x are summed along
with it, and 1 / sqrt(mean square + ε) is a factor of the finished sums. So a row is rounded once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ... import is_interpreted
from ...arrival import counters, is_last
from ...launch.tuning import LaunchConfig
from .unpack_codes import packed_halves

# Numpy has no bfloat16 and is slow with float16, so the interpreter multiplies them as float32: the same numbers.
_IS_INTERPRETED = tl.constexpr(is_interpreted())
_TWO_TO_23, _TWO_TO_23_BITS = tl.constexpr(2.0**23), tl.constexpr(0x4B000000)  # a float, and how it is written
_TWO_TO_19 = tl.constexpr(2.0**19)
_NEIGHBOURS = tl.constexpr(8)  # tiles of rows that share a tile of outputs while it is in the cache
FEW_ROWS = 64  # up to which the weights' way from memory counts, and parts are spread over programs
_PROGRAMS = 264  # two for each multiprocessor of an H100
_SHORTEST_PART = 512
_FEWEST_INPUTS = 32  # that matrix units multiply at once

# A norm's weight, which meets rows on their way, is made smaller, and the sums larger again, that a large number of the
# stream times a large weight of the norm stays within float16.
SMALLER, _LARGER = tl.constexpr(0.0625), tl.constexpr(16.0)


@triton.jit
def corner(num_rows, num_outputs, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The first row and the first output of this program's tile."""
    tiles_m, tiles_n = tl.cdiv(num_rows, BLOCK_M), tl.cdiv(num_outputs, BLOCK_N)
    program = tl.program_id(0)
    m, n = tl.swizzle2d(program // tiles_n, program % tiles_n, tiles_m, tiles_n, _NEIGHBOURS)
    return m * BLOCK_M, n * BLOCK_N


@triton.jit
def lines(base, first, count, length, BLOCK: tl.constexpr):
    """Pointers to the beginnings of BLOCK lines of a matrix; beyond the last one, that one again."""
    inside = tl.minimum(tl.arange(0, BLOCK), count - 1 - first)
    return base + first.to(tl.int64) * length + inside * length


@triton.jit
def met(tile, met_type: tl.constexpr):
    """A tile as the matrix units take it."""
    if tile.dtype == tl.int8 and met_type != tl.int8:
        # Offset by 128, a byte is what follows the leading bit of 2^23; conversions of bytes are slower.
        bits = tile.to(tl.uint8, bitcast=True).to(tl.int32) ^ (_TWO_TO_23_BITS + 128)
        tile = bits.to(tl.float32, bitcast=True) - (_TWO_TO_23 + 128.0)
    met_as = tile.to(met_type)
    if _IS_INTERPRETED and met_type != tl.int8:
        met_as = met_as.to(tl.float32)
    return met_as


@triton.jit
def met_halves(octets, lower_zeros, upper_zeros, met_type: tl.constexpr):
    """The lower and the upper halves of bytes less their zeros, as the matrix units take them."""
    if _IS_INTERPRETED or met_type == tl.float32:
        words = octets.to(tl.int32) | _TWO_TO_23_BITS
        lower = (words & (_TWO_TO_23_BITS + 15)).to(tl.float32, bitcast=True) - (lower_zeros + _TWO_TO_23)
        # 16 times as large where they are; all of it exact.
        upper = (words & (_TWO_TO_23_BITS + 240)).to(tl.float32, bitcast=True)
        sixteenth = tl.full(upper.shape, 0.0625, tl.float32)
        upper = tl.fma(upper, sixteenth, tl.broadcast_to(-(upper_zeros + _TWO_TO_19), upper.shape))
        lower, upper = met(lower, met_type), met(upper, met_type)
    else:
        lower, upper = packed_halves(octets, lower_zeros, upper_zeros, met_type)
    return lower, upper


@triton.jit
def finished(sums, scales, row_scales, bias, lines):
    """Sums [lines, rows] with what they are multiplied with, and their bias, where there are such."""
    if scales is not None:
        sums = sums.to(tl.float32) * tl.load(scales + lines)[:, None]
    if row_scales is not None:
        sums = sums * row_scales[None, :]
    if bias is not None:
        sums = sums + tl.load(bias + lines).to(tl.float32)[:, None]
    return sums


@triton.jit
def finish(
    sums, output, partial, counters, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs,
    PARTS: tl.constexpr, IS_SPREAD: tl.constexpr,
):  # fmt: skip
    """Stores sums [outputs, rows]: of all parts, or of this program's, which the last one adds to the others'."""
    if IS_SPREAD:
        tile = tl.program_id(0)
        store_part(partial, tile, tl.program_id(1), sums, PARTS)
        if is_last(counters, tile, PARTS):
            sums = added_parts(partial, tile, sums, PARTS)
            _store(sums, output, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs)
    else:
        _store(sums, output, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs)


@triton.jit
def _store(sums, output, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs):
    rows, outputs = tl.arange(0, sums.shape[1]), first_output + tl.arange(0, sums.shape[0])
    is_row, is_output = rows < num_rows - first_row, outputs < num_outputs
    if row_scales is not None:
        row_scales = tl.load(row_scales + first_row + rows, mask=is_row, other=0)
    results = finished(sums, scales, row_scales, bias, tl.minimum(outputs, num_outputs - 1))
    targets = output + first_row.to(tl.int64) * num_outputs + rows[None, :] * num_outputs + outputs[:, None]
    tl.store(targets, results.to(output.dtype.element_ty), mask=is_output[:, None] & is_row[None, :])


def launch(
    kernel: Any,
    operands: tuple[Any, ...],
    finishing: tuple[Tensor | None, Tensor | None],
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    choice: LaunchConfig,
    **constants: Any,
) -> Tensor:
    """The product [rows, outputs] of `shape` = (rows, outputs, inputs) by a kernel of tiles.

    `operands` begin with x; `finishing` are scales of rows, and a bias.
    """
    x, (rows, outputs, _), parts = operands[0], shape, choice["PARTS"]
    output = torch.empty(rows, outputs, dtype=dtype, device=x.device)
    if not output.numel():
        return output
    tiles = triton.cdiv(rows, choice["BLOCK_M"]) * triton.cdiv(outputs, choice["BLOCK_N"])
    is_spread = parts > 1 and rows <= FEW_ROWS
    sums = torch.int32 if x.dtype == torch.int8 else torch.float32
    joined = room_for(parts if is_spread else 1, tiles * choice["BLOCK_N"] * choice["BLOCK_M"], x.device, sums)
    options = {**choice.options, **constants, "IS_SPREAD": is_spread, "enable_fp_fusion": False}
    kernel[(tiles, parts if is_spread else 1)](*operands, output, *joined, *finishing, *shape, **options)
    return output


def num_parts(outputs: int, inputs: int, block: int) -> int:
    """The number of parts that inputs are cut into, so that one row keeps a GPU busy; a power of two."""
    tiles, parts = triton.cdiv(outputs, block), 1
    while parts < 8 and 2 * parts * tiles <= _PROGRAMS and inputs >= 2 * parts * _SHORTEST_PART:
        parts *= 2
    return parts


def dividing(block: int, inputs: int) -> int:
    """So many inputs at a time, or fewer if these divide all of them: what checks each input spills registers."""
    return min(block, max(inputs & -inputs, _FEWEST_INPUTS))


def row_bucket(rows: int) -> int:
    """What stands for a number of rows when blocks are chosen: the next power of two, within bounds."""
    return min(max(16, triton.next_power_of_2(rows)), 1024)


def room_for(
    parts: int, numbers: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Memory for so many parts of all tiles' numbers, and counters of them; nothing if there is one part."""
    return (torch.empty(parts * numbers, dtype=dtype, device=device), counters(device)) if parts > 1 else (None, None)


@triton.jit
def store_part(partial, tile, part, sums, PARTS: tl.constexpr):
    """`sums` are this part's [lines, rows]."""
    tl.store(partial + (tile * PARTS + part).to(tl.int64) * sums.numel + _places(sums), sums)


@triton.jit
def added_parts(partial, tile, sums, PARTS: tl.constexpr):
    """All parts; `sums` says only what they look like."""
    added = tl.zeros_like(sums)
    first = partial + tile.to(tl.int64) * (PARTS * sums.numel)
    for part in tl.static_range(PARTS):
        # Not from the nearest cache, which may hold what was there before.
        added += tl.load(first + part * sums.numel + _places(sums), cache_modifier=".cg")
    return added


@triton.jit
def _places(sums):
    return tl.arange(0, sums.shape[0])[:, None] * sums.shape[1] + tl.arange(0, sums.shape[1])[None, :]


@triton.jit
def factors_of(norm_weight, start, num_inputs, LENGTH: tl.constexpr):
    """The norm's weight of a run of inputs: [1, LENGTH]."""
    inputs = start + tl.arange(0, LENGTH)[None, :]
    return tl.load(norm_weight + inputs, mask=inputs < num_inputs, other=0)


@triton.jit
def weighed(x_tile, factors, squares):
    """A tile of rows with its factors, and the squares so far with this tile's."""
    numbers = x_tile.to(tl.float32)
    return numbers * (factors.to(tl.float32) * SMALLER), tl.fma(numbers, numbers, squares)


@triton.jit
def row_factors(squares, num_inputs, epsilon):
    """Scales of the rows, by which their finished sums are multiplied."""
    return tl.rsqrt(squares / num_inputs + epsilon) * _LARGER
