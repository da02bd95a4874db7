"""How grouped products are tiled. A block has 16 pairs, or 64 where experts have more than that on average.

Keys are (bytes per number that is met, pairs of a block, lines of an expert's weight, inputs, group size, whether it is
gated).
"""

from functools import partial

import triton

from ...stored.block_kinds import CODES
from ..launch.tuning import Key, LaunchConfig, Tuning
from ..products.tiles.tiles import dividing

FEW_PAIRS, MANY_PAIRS = 16, 64  # of a block
_OF_A_MODEL = 80  # lines at least


def block_size(num_pairs: int, num_experts: int) -> int:
    return FEW_PAIRS if num_pairs <= FEW_PAIRS * num_experts else MANY_PAIRS


def _default(architecture: int, key: Key, bytes_of_line: int) -> LaunchConfig:
    width, pairs, lines, inputs, *_ = key
    if not architecture:
        return _interpreted(lines, BLOCK_K=64 if lines < _OF_A_MODEL else min(512, triton.next_power_of_2(inputs)))
    if width == 4:  # not for matrix units
        return LaunchConfig.of(BLOCK_N=32, BLOCK_K=32, num_stages=3)
    if pairs == FEW_PAIRS:
        return LaunchConfig.of(4, 4, BLOCK_N=64, BLOCK_K=dividing(bytes_of_line, inputs))
    # More warps, since sums of 64 rows would not fit into four warps' registers.
    return LaunchConfig.of(8, 3, BLOCK_N=64, BLOCK_K=dividing(128 // width, inputs))


def _int4_default(architecture: int, key: Key) -> LaunchConfig:
    width, pairs, lines, *_ = key
    if not architecture:
        return _interpreted(lines)
    if width == 4:
        return LaunchConfig.of(BLOCK_N=32, num_stages=3)
    return LaunchConfig.of(2, 6, BLOCK_N=64) if pairs == FEW_PAIRS else LaunchConfig.of(8, 4, BLOCK_N=64)


def _blocks_default(architecture: int, key: Key) -> LaunchConfig:
    width, _, lines, *_ = key
    if not architecture:
        return _interpreted(lines)
    if width == 4:
        return LaunchConfig.of(BLOCK_N=32, num_stages=3)
    # Taking codes apart wants registers, of which more warps have more.
    return LaunchConfig.of(8, 3, BLOCK_N=64)


def _interpreted(lines: int, **blocks: int) -> LaunchConfig:
    """An interpreted program takes as long as it has lines, whatever its tile: of a whole model's products few are
    best."""
    return LaunchConfig.of(BLOCK_N=32 if lines < _OF_A_MODEL else min(1024, triton.next_power_of_2(lines)), **blocks)


_FLOAT_CHOICES = [
    *(LaunchConfig.of(4, stages, BLOCK_N=64, BLOCK_K=block) for block, stages in ((64, 6), (128, 4))),
    *(LaunchConfig.of(8, stages, BLOCK_N=64, BLOCK_K=64) for stages in (3, 4)),
    *(LaunchConfig.of(8, 3, BLOCK_N=128, BLOCK_K=block) for block in (32, 64)),
]
_INT8_CHOICES = [
    *(LaunchConfig.of(4, 4, BLOCK_N=64, BLOCK_K=block) for block in (128, 256)),
    *(LaunchConfig.of(8, stages, BLOCK_N=64, BLOCK_K=128) for stages in (3, 4)),
    *(LaunchConfig.of(8, 3, BLOCK_N=128, BLOCK_K=block) for block in (64, 128)),
]
_INT4_CHOICES = [
    *(LaunchConfig.of(warps, 6, BLOCK_N=64) for warps in (2, 4)),
    *(LaunchConfig.of(8, 4, BLOCK_N=lines) for lines in (64, 128)),
]
_BLOCK_CHOICES = [
    *(LaunchConfig.of(warps, 3, BLOCK_N=64) for warps in (2, 4, 8)),
    LaunchConfig.of(8, 3, BLOCK_N=128),
]
FLOATS = Tuning("experts", partial(_default, bytes_of_line=128), _FLOAT_CHOICES)
INT8 = Tuning("experts_int8", partial(_default, bytes_of_line=256), _INT8_CHOICES)
INT4 = Tuning("experts_int4", _int4_default, _INT4_CHOICES)
TUNINGS = {"fp32": FLOATS, "fp16": FLOATS, "bf16": FLOATS, "int8": INT8, "int4": INT4} | {
    kind: Tuning(f"experts_{kind}", _blocks_default, _BLOCK_CHOICES) for kind in CODES
}
