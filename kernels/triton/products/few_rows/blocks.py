"""The kernel of few_rows.py for weights in blocks of ggml's types, with what stands around a product."""

from collections.abc import Iterator

import triton
import triton.language as tl

from ....operands import Kind
from ....stored.block_kinds import CODES
from ...launch.compiled import Example
from ..tiles.part_sums_blocks import UNLIKE_KINDS, BlockPlanes, block_lines, block_types, constants, sum_of_blocks_part
from .choice import TUNINGS
from .ending import Ending, join_and_end, lines_of_tile


@triton.jit(do_not_specialize=["num_rows"])
def multiply_few_rows_blocks(
    x, values, plane, d, dmin, scales, mins, table, bias, norm_weight, output, partial, counters, epsilon, num_rows,
    num_outputs, num_inputs, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, ZERO: tl.constexpr, UNIT: tl.constexpr, IS_POWER: tl.constexpr, PARTS: tl.constexpr,
    IS_GATED: tl.constexpr, ADDS: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    HAS_NORM: tl.constexpr = norm_weight is not None
    first_output = tl.program_id(0) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED).to(tl.int64)
    weight = BlockPlanes(values, plane, d, dmin, scales, mins, table)
    starts = block_lines(lines, num_inputs, BITS, BLOCK)
    x_rows = x + tl.minimum(tl.arange(0, BLOCK_M), num_rows - 1) * num_inputs
    sums, squares = sum_of_blocks_part(
        x_rows, weight, starts, norm_weight, tl.program_id(1), num_inputs, tl.zeros((BLOCK_N, BLOCK_M), tl.float32),
        BITS, BLOCK, GROUP, ZERO, UNIT, IS_POWER, PARTS, IS_EVEN, x.dtype.element_ty,
    )  # fmt: skip
    ending = Ending(output, None, bias, partial, counters)
    join_and_end(
        sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, PARTS, HAS_NORM, IS_GATED, ADDS
    )  # fmt: skip


def examples() -> Iterator[Example]:
    """The decode steps of models from 0.6 to 8 billion weights, with what a layer does around its products in turn."""
    few, many = (1024, 4096), (24576, 4096)
    normed, added, gated = {"norm_weight"}, {"ADDS"}, {"norm_weight", "IS_GATED"}
    around: tuple[tuple[int, tuple[int, int], set[str]], ...] = (
        (8, few, normed), (8, many, gated), (16, few, added), (64, many, {"IS_GATED"})
    )  # fmt: skip
    for number, kind in enumerate(UNLIKE_KINDS):
        yield from _examples(kind, *around[number % 2])
    for kind in ("q4_k", "q6_k", "q8_0", "iq4_xs"):
        for each in around:
            yield from _examples(kind, *each)


def _examples(kind: Kind, rows: int, shape: tuple[int, int], around: set[str]) -> Iterator[Example]:
    for targets in ((80, 89), (90, 100)):
        codes = CODES[kind]
        choice = TUNINGS[kind].default(targets[0], (2, rows, *shape, codes.group, int("IS_GATED" in around)))
        joined = {"partial": "*fp32", "counters": "*i32"} if choice["PARTS"] > 1 else {}
        pointers = dict.fromkeys(("x", "bias", "norm_weight", "output"), "*bf16") | block_types(codes) | joined
        pointers = {name: of for name, of in pointers.items() if name in around or name != "norm_weight"}
        sizes = {"epsilon": "fp32"} | dict.fromkeys(("num_rows", "num_outputs", "num_inputs"), "i32")
        kept = {**dict(choice.blocks), **constants(codes), "BLOCK_M": rows, "IS_EVEN": True}
        kept |= {name: name in around for name in ("IS_GATED", "ADDS")}
        absent = [name for name in multiply_few_rows_blocks.arg_names if name not in {**pointers, **sizes, **kept}]
        yield Example(
            f"few rows, {kind}, {rows} rows, {sorted(around)}", multiply_few_rows_blocks, {**pointers, **sizes},
            kept | dict.fromkeys(absent), choice.num_warps, choice.num_stages,
            (*pointers, "num_outputs", "num_inputs"), targets,
        )  # fmt: skip
