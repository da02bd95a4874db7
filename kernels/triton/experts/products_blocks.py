"""Grouped products (products.py) with experts' weights in blocks of ggml's types: taken apart in the tile and rounded
to the rows' format, as those of dense layers are."""

from collections.abc import Iterator

import triton
import triton.language as tl

from ...operands import Kind
from ...stored.block_kinds import CODES
from ..launch.compiled import Example
from ..products.tiles.part_sums_blocks import (
    UNLIKE_KINDS,
    BlockPlanes,
    block_lines,
    block_types,
    constants,
    sum_of_blocks_part,
)
from ..products.tiles.tiles import finished
from .choice import FEW_PAIRS, MANY_PAIRS, TUNINGS
from .tile import Activation, outputs_and_lines, pairs_and_rows, store_results


@triton.jit
def multiply_experts_blocks(
    x, values, plane, d, dmin, scales, mins, table, bias, output, experts, pairs, slope, shift, limit, cubic,
    num_outputs, num_inputs, SHARE: tl.constexpr, IS_GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
    BITS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, ZERO: tl.constexpr, UNIT: tl.constexpr,
    IS_POWER: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    expert = tl.load(experts + tl.program_id(0))
    if expert >= 0:
        own, rows = pairs_and_rows(pairs, SHARE, SIZE)
        first_output, lines = outputs_and_lines(expert, num_outputs, BLOCK_N, IS_GATED)
        weight = BlockPlanes(values, plane, d, dmin, scales, mins, table)
        starts = block_lines(lines, num_inputs, BITS, BLOCK)
        sums, _ = sum_of_blocks_part(
            x + rows * num_inputs, weight, starts, None, 0, num_inputs, tl.zeros((BLOCK_N, SIZE), tl.float32), BITS,
            BLOCK, GROUP, ZERO, UNIT, IS_POWER, 1, IS_EVEN, x.dtype.element_ty,
        )  # fmt: skip
        results = finished(sums, None, None, bias, lines)
        store_results(results, output, own, first_output, num_outputs, Activation(slope, shift, limit, cubic), IS_GATED)


def examples() -> Iterator[Example]:
    """Qwen3-30B-A3B's experts in every kind: steps of answers; and of prompts, in the kinds that files have most."""
    for kind in UNLIKE_KINDS:
        yield _example(kind, FEW_PAIRS, True, (1536, 2048))
    kinds: tuple[Kind, ...] = ("q4_k", "q6_k", "q8_0", "mxfp4")
    for kind in kinds:
        yield _example(kind, MANY_PAIRS, True, (1536, 2048))
        yield _example(kind, FEW_PAIRS, False, (2048, 768))


def _example(kind: Kind, size: int, is_gated: bool, shape: tuple[int, int]) -> Example:
    codes = CODES[kind]
    choice = TUNINGS[kind].default(90, (2, size, *shape, codes.group, int(is_gated)))
    pointers = {"x": "*bf16", **block_types(codes), "bias": "*bf16", "output": "*bf16"}
    pointers |= {"experts": "*i32", "pairs": "*i32"}
    sizes = dict.fromkeys(Activation._fields, "fp32") | dict.fromkeys(("num_outputs", "num_inputs"), "i32")
    kept = {**dict(choice.blocks), **constants(codes), "SHARE": 8 if is_gated else 1, "IS_GATED": is_gated}
    kept |= {"SIZE": size, "IS_EVEN": True}
    absent = [name for name in multiply_experts_blocks.arg_names if name not in {**pointers, **sizes, **kept}]
    return Example(
        f"experts, {kind}, blocks of {size}, {'gated' if is_gated else 'down'}", multiply_experts_blocks,
        {**pointers, **sizes}, kept | dict.fromkeys(absent), choice.num_warps, choice.num_stages,
        (*pointers, "num_outputs", "num_inputs"),
    )  # fmt: skip
