"""Products with weights in blocks of ggml's types; the rows stay as they come.

One kernel for many rows, and for those whose bits must not depend on their company; few rows are few_rows.py's,
very many dequantized.py's.
"""

from collections.abc import Iterator
from functools import partial

import triton
import triton.language as tl
from torch import Tensor

from ...operands import Kind
from ...reference import products
from ...stored.block_kinds import CODES
from ...torch.packed.gpu_blocks import SPAN, GpuBlocks
from ..launch.compiled import Example
from ..launch.tuning import Key, LaunchConfig, Tuning, architecture
from .dequantized import linear_dequantized, serves
from .few_rows.few_rows import multiply_few
from .tiles.part_sums_blocks import (
    UNLIKE_KINDS,
    BlockPlanes,
    block_lines,
    block_types,
    constants,
    planes_of,
    sum_of_blocks_part,
)
from .tiles.tiles import FEW_ROWS, corner, finish, finishing_types, launch, lines, num_parts, row_bucket

_INTERPRETED = LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, PARTS=2)
# An interpreted program takes as long as it has lines, whatever its tile: of a whole model's products few are best.
_OF_A_MODEL = 80  # outputs at least
_INTERPRETED_MODEL = LaunchConfig.of(BLOCK_M=64, BLOCK_N=1024, PARTS=1)


@triton.jit(do_not_specialize=["num_rows"])
def multiply_blocks(
    x, values, plane, d, dmin, group_scales, group_mins, table, output, partial, counters, scales, row_scales, bias,
    num_rows, num_outputs, num_inputs, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BITS: tl.constexpr,
    BLOCK: tl.constexpr, GROUP: tl.constexpr, ZERO: tl.constexpr, UNIT: tl.constexpr, IS_POWER: tl.constexpr,
    PARTS: tl.constexpr, IS_SPREAD: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    first_row, first_output = corner(num_rows, num_outputs, BLOCK_M, BLOCK_N)
    met_type: tl.constexpr = x.dtype.element_ty
    x_rows = lines(x, first_row, num_rows, num_inputs, BLOCK_M)
    own = tl.minimum(first_output + tl.arange(0, BLOCK_N), num_outputs - 1).to(tl.int64)
    weight = BlockPlanes(values, plane, d, dmin, group_scales, group_mins, table)
    starts = block_lines(own, num_inputs, BITS, BLOCK)
    nothing = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    if IS_SPREAD or PARTS == 1:
        sums, _ = sum_of_blocks_part(
            x_rows, weight, starts, None, tl.program_id(1), num_inputs, nothing, BITS, BLOCK, GROUP, ZERO, UNIT,
            IS_POWER, PARTS, IS_EVEN, met_type,
        )  # fmt: skip
    else:
        sums = nothing
        for part in range(PARTS):
            more, _ = sum_of_blocks_part(
                x_rows, weight, starts, None, part, num_inputs, nothing, BITS, BLOCK, GROUP, ZERO, UNIT, IS_POWER,
                PARTS, IS_EVEN, met_type,
            )  # fmt: skip
            sums += more
    finish(
        sums, output, partial, counters, scales, row_scales, bias, first_row, first_output, num_rows, num_outputs,
        PARTS, IS_SPREAD,
    )  # fmt: skip


def _computed(x: Tensor, weight: GpuBlocks, bias: Tensor | None, choice: LaunchConfig) -> Tensor:
    operands = (x.contiguous(), *planes_of(weight))
    shape = (x.shape[0], weight.out_features, weight.in_features)
    kept = constants(weight.codes) | {"IS_EVEN": weight.in_features % SPAN == 0}
    return launch(multiply_blocks, operands, (None, None, bias), shape, x.dtype, choice, **kept)


def _default(architecture: int, key: Key) -> LaunchConfig:
    """The choice for a key (bytes of a row's number, rows, outputs, inputs)."""
    width, rows, outputs, inputs = key
    if not architecture:
        return _INTERPRETED if outputs < _OF_A_MODEL else _INTERPRETED_MODEL
    if width == 4:  # not for matrix units
        return LaunchConfig.of(BLOCK_M=16, BLOCK_N=32, PARTS=num_parts(outputs, inputs, 32), num_stages=3)
    if rows <= FEW_ROWS:
        # Eight warps, for sums of 64 rows, of this part and of others, would not fit into four warps' registers; newer
        # units have memory of their own for them.
        warps = 4 if architecture >= 100 else 8
        return LaunchConfig.of(warps, 3, BLOCK_M=rows, BLOCK_N=64, PARTS=num_parts(outputs, inputs, 64))
    return LaunchConfig.of(BLOCK_M=64, BLOCK_N=128, PARTS=1, num_stages=3)


_CHOICES = [
    LaunchConfig.of(BLOCK_M=64, BLOCK_N=64, PARTS=1, num_stages=4),
    LaunchConfig.of(BLOCK_M=64, BLOCK_N=128, PARTS=1, num_stages=3),
    LaunchConfig.of(BLOCK_M=64, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3),
    LaunchConfig.of(BLOCK_M=128, BLOCK_N=128, PARTS=1, num_warps=8, num_stages=3),
]
TUNINGS = {kind: Tuning(f"linear_{kind}", _default, _CHOICES) for kind in CODES}


def _key(x: Tensor, weight: GpuBlocks, rows: int) -> Key:
    return (x.element_size(), rows, weight.out_features, weight.in_features)


@products.linear_blocks.implement("triton")
def linear_blocks(x: Tensor, weight: GpuBlocks, bias: Tensor | None) -> Tensor:
    if len(x) <= FEW_ROWS:
        return multiply_few(x, weight, bias)
    if serves(x):
        return linear_dequantized(x, weight, bias)
    compute = partial(_computed, x, weight, bias)
    return compute(TUNINGS[weight.kind].choice(_key(x, weight, row_bucket(len(x))), compute))


@products.linear_blocks_invariant.implement("triton")
def linear_blocks_invariant(x: Tensor, weight: GpuBlocks, bias: Tensor | None) -> Tensor:
    """One tile and one order of the inputs for any number of rows."""
    return _computed(x, weight, bias, _default(architecture(), _key(x, weight, FEW_ROWS)))


def examples() -> Iterator[Example]:
    """The prompt steps of models from 0.6 to 8 billion weights, and the row-invariant tile."""
    few, many = (1024, 4096), (24576, 4096)
    for targets in ((80, 89, 90), (100,)):
        for kind in UNLIKE_KINDS:
            yield _example(kind, f"{kind}, many rows", 512, many, False, targets)
        kinds: tuple[Kind, ...] = ("q4_k", "q6_k", "q8_0")
        for kind in kinds:
            yield _example(kind, f"{kind}, few rows, invariant", FEW_ROWS, few, True, targets)
            yield _example(kind, f"{kind}, any rows, invariant", FEW_ROWS, few, False, targets)


def _example(
    kind: Kind, name: str, rows: int, shape: tuple[int, int], is_spread: bool, targets: tuple[int, ...]
) -> Example:
    choice = _default(targets[0], (2, rows, *shape))
    types, aligned = finishing_types("bf16", {}, "fp32" if is_spread else None)
    of_weight = block_types(CODES[kind], "group_scales", "group_mins")
    types |= {"x": "*bf16", **of_weight}
    kept = {**dict(choice.blocks), **constants(CODES[kind]), "IS_SPREAD": is_spread, "IS_EVEN": True}
    absent = [each for each in multiply_blocks.arg_names if each not in {**types, **kept}]
    options = (choice.num_warps, choice.num_stages, (*aligned, "x", *of_weight), targets)
    return Example(f"product, {name}", multiply_blocks, types, kept | dict.fromkeys(absent), *options)
