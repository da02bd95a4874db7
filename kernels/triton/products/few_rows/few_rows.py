"""Products of few rows: in one launch a norm before them, and their sum with the stream or their gate after them.

A decode step of few rows waits for the weights' way from memory: narrow tiles, deeply pipelined. Where there are few
outputs the inputs are cut into parts, and the last of the programs that share a tile ends it. All rows are in every
tile. A gated product's tile takes lines of the gate and of its partner in turn, so that both sums meet in one program.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ....operands import DTYPES, Norm
from ....reference.products import linear_few_rows
from ....torch.packed.gpu_blocks import SPAN, GpuBlocks
from ....torch.packed.gpu_weights import GpuWeight, half_block
from ...launch.compiled import Example
from ...launch.tuning import Key, LaunchConfig
from ...rms_norm import rms_norm
from ..tiles.part_sums import sum_of_part
from ..tiles.part_sums_blocks import constants, planes_of
from ..tiles.part_sums_int4 import sum_of_int4_part
from ..tiles.parts import room_for
from .blocks import multiply_few_rows_blocks
from .choice import NORMED_ROWS, NORMED_ROWS_OF_HALVES, TUNINGS, row_block
from .ending import Ending, join_and_end, lines_of_tile


@triton.jit(do_not_specialize=["num_rows"])
def multiply_few_rows(
    x, values, scales, bias, norm_weight, output, partial, counters, epsilon, num_rows, num_outputs, num_inputs,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr, IS_GATED: tl.constexpr,
    ADDS: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    HAS_NORM: tl.constexpr = norm_weight is not None
    first_output = tl.program_id(0) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED).to(tl.int64)
    weight_lines, part = values + lines * num_inputs, tl.program_id(1)
    x_rows = x + tl.minimum(tl.arange(0, BLOCK_M), num_rows - 1) * num_inputs
    met_type: tl.constexpr = x.dtype.element_ty if values.dtype.element_ty == tl.int8 else values.dtype.element_ty
    sums, squares = sum_of_part(
        x_rows, weight_lines, norm_weight, part, num_inputs, tl.zeros((BLOCK_N, BLOCK_M), tl.float32), BLOCK_K, PARTS,
        IS_EVEN, met_type,
    )  # fmt: skip
    ending = Ending(output, scales, bias, partial, counters)
    join_and_end(
        sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, PARTS, HAS_NORM, IS_GATED, ADDS
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_rows"])
def multiply_few_rows_int4(
    x, values, group_scales, zeros, bias, norm_weight, output, partial, counters, epsilon, num_rows, num_outputs,
    num_inputs, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr,
    PARTS: tl.constexpr, IS_GATED: tl.constexpr, ADDS: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    HAS_NORM: tl.constexpr = norm_weight is not None
    first_output = tl.program_id(0) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED).to(tl.int64)
    blocks, part = tl.cdiv(num_inputs, 2 * HALF), tl.program_id(1)
    octet_lines = values + lines * (blocks * HALF)
    groups = tl.cdiv(blocks * 2 * HALF, GROUP)
    if zeros is not None:
        zeros += lines * groups
    x_rows = x + tl.minimum(tl.arange(0, BLOCK_M), num_rows - 1) * num_inputs
    sums, squares = sum_of_int4_part(
        x_rows, octet_lines, group_scales + lines * groups, zeros, norm_weight, part, num_inputs,
        tl.zeros((BLOCK_N, BLOCK_M), tl.float32), GROUP, HALF, PARTS, IS_EVEN, x.dtype.element_ty,
    )  # fmt: skip
    ending = Ending(output, None, bias, partial, counters)
    join_and_end(
        sums, squares, ending, first_output, num_rows, num_outputs, num_inputs, epsilon, PARTS, HAS_NORM, IS_GATED, ADDS
    )  # fmt: skip


@linear_few_rows.implement("triton")
def multiply_few(
    x: Tensor,
    weight: GpuWeight,
    bias: Tensor | None,
    norm: Norm | None = None,
    stream: Tensor | None = None,
    is_gated: bool = False,
) -> Tensor:
    """[rows, outputs] in x's dtype; with `stream` the product is added to it in place, and it is what is given."""
    most_normed = NORMED_ROWS if weight.kind in (*DTYPES, "int8") else NORMED_ROWS_OF_HALVES
    if norm is not None and (len(x) > most_normed or weight.order is not None):
        x, norm = rms_norm(x, norm.weight, norm.epsilon), None
    x = x.contiguous() if weight.order is None else x.index_select(1, weight.order)
    launch = partial(_launch, x, weight, bias, norm, is_gated)

    def tried(choice: LaunchConfig) -> None:
        launch(None if stream is None else stream.clone(), choice)

    return launch(stream, TUNINGS[weight.kind].choice(_key(x, weight, is_gated), tried))


def _key(x: Tensor, weight: GpuWeight, is_gated: bool) -> Key:
    met = weight.values if weight.kind in DTYPES else x
    shape = (weight.out_features, weight.in_features, weight.group_size)
    return (met.element_size(), row_block(len(x)), *shape, int(is_gated))


def _launch(
    x: Tensor,
    weight: GpuWeight,
    bias: Tensor | None,
    norm: Norm | None,
    is_gated: bool,
    stream: Tensor | None,
    choice: LaunchConfig,
) -> Tensor:
    rows, outputs, inputs = len(x), weight.out_features // (1 + is_gated), weight.in_features
    output = x.new_empty(rows, outputs) if stream is None else stream
    if not output.numel():
        return output
    parts, lines = choice["PARTS"], choice["BLOCK_N"]
    tiles = triton.cdiv(outputs, lines // (1 + is_gated))
    joined = room_for(parts, tiles * (lines + (norm is not None)) * row_block(rows), x.device)
    norm_weight, epsilon = norm or (None, 0.0)
    common = (bias, norm_weight, output, *joined, epsilon, rows, outputs, inputs)
    options = {"BLOCK_M": row_block(rows), "IS_GATED": is_gated, "ADDS": stream is not None, **choice.options}
    kernel, weights, kept = _kernel_of(weight, choice)
    kernel[(tiles, parts)](x, *weights, *common, **kept, **options)
    return output


def _kernel_of(weight: GpuWeight, choice: LaunchConfig) -> tuple[Any, tuple[Tensor | None, ...], dict[str, Any]]:
    """What multiplies with a weight, what it is given of it, and what it is compiled for."""
    inputs = weight.in_features
    if isinstance(weight, GpuBlocks):
        kept = constants(weight.codes) | {"IS_EVEN": inputs % SPAN == 0}
        return multiply_few_rows_blocks, planes_of(weight), kept
    if weight.kind == "int4":
        kept = {"GROUP": weight.group_size, "HALF": weight.half, "IS_EVEN": inputs % (2 * weight.half) == 0}
        return multiply_few_rows_int4, (weight.values, weight.scales, weight.zeros), kept
    return multiply_few_rows, (weight.values, weight.scales), {"IS_EVEN": inputs % choice["BLOCK_K"] == 0}


def examples() -> Iterator[Example]:
    """The decode steps of models from 0.6 to 8 billion weights, with what a layer does around its products in turn."""
    few, many = (1024, 4096), (24576, 4096)
    normed, added, gated = {"norm_weight"}, {"ADDS"}, {"norm_weight", "IS_GATED"}
    for kind, group, rows, shape, around in (
        ("bf16", 0, 8, few, normed),
        ("bf16", 0, 16, few, added),
        ("bf16", 0, 16, many, gated),
        ("bf16", 0, 32, many, {"IS_GATED"}),
        ("bf16", 0, 64, many, {"IS_GATED"}),
        ("fp32", 0, 16, few, gated),
        ("fp32", 0, 64, few, added),
        ("int8", 0, 8, few, normed),
        ("int8", 0, 16, many, gated),
        ("int8", 0, 64, few, added),
        ("int4", 128, 8, many, gated),
        ("int4", 128, 8, few, normed | {"zeros"}),
        ("int4", 64, 8, few, added),
        ("int4", 64, 16, many, {"IS_GATED"}),
        ("int4", 32, 8, few, gated),
        ("int4", 32, 16, few, added),
        ("int4", 128, 32, few, added),
        ("int4", 128, 64, many, {"IS_GATED", "zeros"}),
        ("int4", 64, 64, few, added),
    ):
        for targets in ((80, 89), (90, 100)):
            yield _example(kind, group, rows, shape, around, targets)


def _example(
    kind: str, group: int, rows: int, shape: tuple[int, int], around: set[str], targets: tuple[int, ...]
) -> Example:
    number = "fp32" if kind == "fp32" else "bf16"
    key = (4 if kind == "fp32" else 2, rows, *shape, group, int("IS_GATED" in around))
    choice = TUNINGS[kind].default(targets[0], key)
    weights = {
        "int8": {"values": "*i8", "scales": "*fp32"},
        "int4": {"values": "*u8", "group_scales": "*fp16", "zeros": "*u8"},
    }.get(kind, {"values": f"*{number}"})
    joined = {"partial": "*fp32", "counters": "*i32"} if choice["PARTS"] > 1 else {}
    pointers = dict.fromkeys(("x", "bias", "norm_weight", "output"), f"*{number}") | weights | joined
    pointers = {name: of for name, of in pointers.items() if name in around or name not in ("norm_weight", "zeros")}
    sizes = {"epsilon": "fp32"} | dict.fromkeys(("num_rows", "num_outputs", "num_inputs"), "i32")
    kernel, cuts = multiply_few_rows, {}
    if kind == "int4":
        kernel, cuts = multiply_few_rows_int4, {"GROUP": group, "HALF": half_block(group)}
    constants = {**dict(choice.blocks), **cuts, "BLOCK_M": rows, "IS_EVEN": True}
    constants |= {name: name in around for name in ("IS_GATED", "ADDS")}
    absent = [name for name in kernel.arg_names if name not in {**pointers, **sizes, **constants}]
    return Example(
        f"few rows, {kind} {group or ''}, {rows} rows, {sorted(around)}", kernel, {**pointers, **sizes},
        constants | dict.fromkeys(absent), choice.num_warps, choice.num_stages,
        (*pointers, "num_outputs", "num_inputs"), targets,
    )  # fmt: skip
