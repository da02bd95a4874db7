"""The product of one row: as `multiply_few` (few_rows.py) gives it, by a kernel of its own.

Matrix units would compute 16 rows, and want weights by way of shared memory. Here they come from memory into registers
and meet the row there; a program has a few lines of the weight, whose loads are all on their way before the first is
used. What is left to save are instructions: row_sums.py and row_sums_int4.py. Knows nothing of layers.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...gpu_weights import GpuWeight, half_block
from ...norm import Norm
from ..compiled import Example
from ..tuning import Choice
from .few_rows_ending import Ending, join_and_end, lines_of_tile
from .norm_on_the_way import SMALLER
from .one_row_choice import PER_WORD, TUNINGS
from .parts import room_for
from .row_sums import sum_of_row
from .row_sums_int4 import sum_of_int4_row


@triton.jit
def _lines(first_output, OUTPUTS: tl.constexpr, BLOCK_N: tl.constexpr, IS_GATED: tl.constexpr):
    """The tile's, at constant distances from one another if no tile reaches beyond the last output."""
    if OUTPUTS % (BLOCK_N // 2 if IS_GATED else BLOCK_N) > 0:
        lines = lines_of_tile(first_output, OUTPUTS, BLOCK_N, IS_GATED)
    else:
        places = tl.arange(0, BLOCK_N)
        lines = first_output + (places // 2 + places % 2 * OUTPUTS if IS_GATED else places)
    return lines


@triton.jit
def multiply_row(
    x, words, scales, bias, norm_weight, output, partial, counters, epsilon, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, KIND: tl.constexpr, PER_WORD: tl.constexpr, BLOCK_N: tl.constexpr, WORDS: tl.constexpr,
    PARTS: tl.constexpr, IS_GATED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    HAS_NORM: tl.constexpr = norm_weight is not None
    first_output = tl.program_id(0) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = _lines(first_output, OUTPUTS, BLOCK_N, IS_GATED).to(tl.int64)
    count, part = INPUTS // PER_WORD, tl.program_id(1)
    word_lines = words + lines * count
    sums, squares = sum_of_row(x, word_lines, norm_weight, part, INPUTS, KIND, PER_WORD, WORDS, PARTS)
    if HAS_NORM:
        sums *= SMALLER
    ending = Ending(output, scales, bias, partial, counters)
    join_and_end(
        sums, squares, ending, first_output, 1, OUTPUTS, INPUTS, epsilon, PARTS, HAS_NORM, IS_GATED, ADDS
    )  # fmt: skip


@triton.jit
def multiply_row_int4(
    x, words, group_scales, zeros, bias, norm_weight, output, partial, counters, epsilon, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr, BLOCK_N: tl.constexpr, WORDS: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr,
    PARTS: tl.constexpr, IS_GATED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    HAS_NORM: tl.constexpr = norm_weight is not None
    first_output = tl.program_id(0) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = _lines(first_output, OUTPUTS, BLOCK_N, IS_GATED).to(tl.int64)
    blocks, part = tl.cdiv(INPUTS, 2 * HALF), tl.program_id(1)
    count, groups = blocks * (HALF // 4), tl.cdiv(blocks * 2 * HALF, GROUP)
    word_lines = words + lines * count
    if zeros is not None:
        zeros += lines * groups
    sums, squares = sum_of_int4_row(
        x, word_lines, group_scales + lines * groups, zeros, norm_weight, part, INPUTS, GROUP, HALF, WORDS, PARTS
    )
    if HAS_NORM:
        sums *= SMALLER
    ending = Ending(output, None, bias, partial, counters)
    join_and_end(
        sums, squares, ending, first_output, 1, OUTPUTS, INPUTS, epsilon, PARTS, HAS_NORM, IS_GATED, ADDS
    )  # fmt: skip


def is_in_words(weight: GpuWeight) -> bool:
    """Whether the weight's lines are whole words; of others no product is computed here."""
    return weight.values.shape[1] * weight.values.element_size() % 4 == 0


def launch_row(
    x: Tensor,
    weight: GpuWeight,
    bias: Tensor | None,
    norm: Norm | None,
    is_gated: bool,
    stream: Tensor | None,
    choice: Choice,
) -> Tensor:
    """[1, outputs] in x's dtype, or the stream with the product in it; `x` follows the weight's order."""
    outputs, parts, lines = weight.out_features // (1 + is_gated), choice["PARTS"], choice["BLOCK_N"]
    output = x.new_empty(1, outputs) if stream is None else stream
    tiles = triton.cdiv(outputs, lines // (1 + is_gated))
    joined = room_for(parts, tiles * (lines + (norm is not None)), x.device)
    norm_weight, epsilon = norm or (None, 0.0)
    common = (bias, norm_weight, output, *joined, epsilon, outputs, weight.in_features)
    options = {"IS_GATED": is_gated, "ADDS": stream is not None, **choice.options}
    words = weight.values.view(torch.int32)
    if weight.kind == "int4":
        options |= {"GROUP": weight.group_size, "HALF": weight.half}
        multiply_row_int4[(tiles, parts)](x, words, weight.scales, weight.zeros, *common, **options)
    else:
        options |= {"KIND": weight.kind, "PER_WORD": PER_WORD[weight.kind]}
        multiply_row[(tiles, parts)](x, words, weight.scales, *common, **options)
    return output


def examples() -> Iterator[Example]:
    """Models from 0.6 to 8 billion weights, with what a layer does around its products in turn."""
    few, many = (1024, 4096), (24576, 4096)
    normed, added, gated = {"norm_weight"}, {"ADDS"}, {"norm_weight", "IS_GATED"}
    for kind, group, shape, around in (
        ("bf16", 0, few, normed),
        ("bf16", 0, many, gated),
        ("fp16", 0, many, added),
        ("fp32", 0, many, gated),
        ("int8", 0, few, normed),
        ("int8", 0, many, gated),
        ("int4", 128, few, normed | {"zeros"}),
        ("int4", 128, many, gated),
        ("int4", 64, many, gated | {"zeros"}),
        ("int4", 32, many, added),
    ):
        for targets in ((80, 89), (90, 100)):
            yield _example(kind, group, shape, around, targets)


def _example(kind: str, group: int, shape: tuple[int, int], around: set[str], targets: tuple[int, ...]) -> Example:
    number = kind if kind in ("fp32", "fp16") else "bf16"
    choice = TUNINGS[kind].default(targets[0], (2, 1, *shape, group, int("IS_GATED" in around)))
    weights = {"scales": "*fp32"} if kind == "int8" else {"group_scales": "*fp16", "zeros": "*u8"}
    joined = {"partial": "*fp32", "counters": "*i32"} if choice["PARTS"] > 1 else {}
    pointers = dict.fromkeys(("x", "bias", "norm_weight", "output"), f"*{number}") | {"words": "*i32"}
    pointers |= (weights if kind.startswith("int") else {}) | joined
    pointers = {name: of for name, of in pointers.items() if name in around or name not in ("norm_weight", "zeros")}
    kernel, constants = multiply_row, {"KIND": kind, "PER_WORD": PER_WORD[kind]}
    if kind == "int4":
        kernel, constants = multiply_row_int4, {"GROUP": group, "HALF": half_block(group)}
    constants |= {**dict(choice.blocks), "OUTPUTS": shape[0], "INPUTS": shape[1]}
    constants |= {name: name in around for name in ("IS_GATED", "ADDS")}
    absent = [name for name in kernel.arg_names if name not in {**pointers, **constants, "epsilon": ""}]
    return Example(
        f"one row, {kind} {group or ''}, {sorted(around)}", kernel, pointers | {"epsilon": "fp32"},
        constants | dict.fromkeys(absent), choice.num_warps, choice.num_stages,
        tuple(pointers), targets,
    )  # fmt: skip
