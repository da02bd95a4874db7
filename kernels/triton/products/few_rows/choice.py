"""How products of few rows are tiled: lines of the weight per tile, inputs per step, parts of the inputs.

Keys are (bytes per number of the input, rows, lines of the weight, inputs, group size, whether it is gated), where rows
are 8, 16, 32 or 64: as many as a tile has. Matrix units take no fewer than 8, and what rows cost (their norm, their way
into registers) counts for 4-bit weights.
"""

from functools import partial

import triton

from ....stored.block_kinds import CODES
from ...launch.tuning import Key, LaunchConfig, Tuning
from ..tiles.tiles import dividing, num_parts

# Up to which a norm on the way costs less than a launch. Each program norms all rows again; where weights take half a
# byte, that is soon more than their way from memory.
NORMED_ROWS = 16
NORMED_ROWS_OF_HALVES = 8
_MANY_LINES = 16384  # enough for a tile of 128 on each multiprocessor
_INTERPRETED = LaunchConfig.of(BLOCK_N=64, BLOCK_K=128, PARTS=2)
# An interpreted program takes as long as it has lines, whatever its tile: of a whole model's products few are best.
_OF_A_MODEL = 80  # lines at least
_INTERPRETED_MODEL = LaunchConfig.of(BLOCK_N=1024, BLOCK_K=512, PARTS=1)


def row_block(rows: int) -> int:
    """Rows of a tile."""
    return max(8, triton.next_power_of_2(rows))


def _default(architecture: int, key: Key, bytes_of_line: int) -> LaunchConfig:
    width, rows, lines, inputs, *_ = key
    if not architecture:
        return _INTERPRETED if lines < _OF_A_MODEL else _INTERPRETED_MODEL
    if width == 4:  # not for matrix units
        return LaunchConfig.of(BLOCK_N=32, BLOCK_K=32, PARTS=num_parts(lines, inputs, 32), num_stages=3)
    # More warps where sums of 64 rows, of this part and of others, would not fit into four warps' registers.
    blocks = {"BLOCK_N": 64, "PARTS": num_parts(lines, inputs, 64)}
    blocks["BLOCK_K"] = dividing(bytes_of_line if rows <= 16 else 64, inputs)
    return LaunchConfig.of(8 if rows == 64 else 4, 4, **blocks)


def _int4_default(architecture: int, key: Key) -> LaunchConfig:
    width, rows, lines, inputs, *_ = key
    if not architecture:
        return LaunchConfig.of(BLOCK_N=64, PARTS=2)
    if width == 4:
        return LaunchConfig.of(BLOCK_N=32, PARTS=num_parts(lines, inputs, 32), num_stages=3)
    block_n = 128 if rows == 8 and lines >= _MANY_LINES else 64
    parts = num_parts(lines, inputs, block_n)
    if rows > 16:
        return LaunchConfig.of(8 if rows == 64 else 4, 4, BLOCK_N=block_n, PARTS=parts)
    # Deep, for tiles of half bytes are small. Two warps meet 16 rows by instructions for 16 lines each, which take
    # bytes from shared memory in fours; those for 64 lines take them in pairs, at more cost than the product's.
    return LaunchConfig.of(4 if rows == 8 else 2, 6, BLOCK_N=block_n, PARTS=parts)


def _blocks_default(architecture: int, key: Key) -> LaunchConfig:
    width, rows, lines, inputs, *_ = key
    if not architecture:
        return LaunchConfig.of(BLOCK_N=64, PARTS=2) if lines < _OF_A_MODEL else LaunchConfig.of(BLOCK_N=1024, PARTS=1)
    if width == 4:
        return LaunchConfig.of(BLOCK_N=32, PARTS=num_parts(lines, inputs, 32), num_stages=3)
    if rows > 16:
        return LaunchConfig.of(8 if rows == 64 else 4, 4, BLOCK_N=64, PARTS=num_parts(lines, inputs, 64))
    return LaunchConfig.of(4, 5, BLOCK_N=64, PARTS=num_parts(lines, inputs, 64))


_FLOAT_CHOICES = [
    *(LaunchConfig.of(BLOCK_N=32, BLOCK_K=256, PARTS=parts, num_stages=4) for parts in (1, 4)),
    *(LaunchConfig.of(BLOCK_N=64, BLOCK_K=128, PARTS=parts, num_stages=4) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_N=64, BLOCK_K=64, PARTS=parts, num_stages=6) for parts in (1, 2, 4)),
    LaunchConfig.of(BLOCK_N=128, BLOCK_K=64, PARTS=1, num_stages=4),
]
_INT8_CHOICES = [
    *(LaunchConfig.of(BLOCK_N=32, BLOCK_K=256, PARTS=parts, num_stages=5) for parts in (1, 4)),
    *(LaunchConfig.of(BLOCK_N=64, BLOCK_K=256, PARTS=parts, num_stages=4) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_N=64, BLOCK_K=128, PARTS=parts, num_stages=4) for parts in (1, 2, 4)),
    LaunchConfig.of(BLOCK_N=128, BLOCK_K=128, PARTS=1, num_stages=4),
]
_INT4_CHOICES = [
    *(LaunchConfig.of(BLOCK_N=64, PARTS=parts, num_warps=2, num_stages=6) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_N=64, PARTS=parts, num_stages=6) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_N=128, PARTS=parts, num_stages=5) for parts in (1, 4)),
    *(LaunchConfig.of(BLOCK_N=64, PARTS=parts, num_warps=8, num_stages=4) for parts in (1, 4)),
]
_BLOCKS_CHOICES = [
    *(LaunchConfig.of(BLOCK_N=64, PARTS=parts, num_stages=5) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_N=64, PARTS=parts, num_warps=2, num_stages=4) for parts in (1, 2, 4, 8)),
    *(LaunchConfig.of(BLOCK_N=128, PARTS=parts, num_stages=3) for parts in (1, 4)),
    *(LaunchConfig.of(BLOCK_N=64, PARTS=parts, num_warps=8, num_stages=3) for parts in (1, 4)),
]
FLOATS = Tuning("few_rows", partial(_default, bytes_of_line=128), _FLOAT_CHOICES)
INT8 = Tuning("few_rows_int8", partial(_default, bytes_of_line=256), _INT8_CHOICES)
INT4 = Tuning("few_rows_int4", _int4_default, _INT4_CHOICES)
TUNINGS = {"fp32": FLOATS, "fp16": FLOATS, "bf16": FLOATS, "int8": INT8, "int4": INT4} | {
    kind: Tuning(f"few_rows_{kind}", _blocks_default, _BLOCKS_CHOICES) for kind in CODES
}
