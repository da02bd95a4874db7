"""Products of few rows: in one launch a norm before them, and their sum with the stream or their gate after them.

A decode step of few rows waits for the weights' way from memory: narrow tiles, deeply pipelined. Where there are few
outputs the inputs are cut into parts, and the last of the programs that share a tile ends it. All rows are in every
tile. A gated product's tile takes lines of the gate and of its partner in turn, so that both sums meet in one program.
"""

from functools import partial

import triton
import triton.language as tl
from torch import Tensor

from ....operands import DTYPES, Norm
from ....reference.products import linear_few_rows
from ....torch.packed.gpu_weights import GpuWeight
from ...launch.dependent import dependent, fetch, wait_for_previous
from ...launch.tuning import Key, LaunchConfig
from ...rms_norm import rms_norm
from ..tiles.part_sums import as_kernels_take_it, is_even, sum_of_part
from ..tiles.tiles import room_for
from .choice import NORMED_ROWS, NORMED_ROWS_OF_HALVES, TUNINGS, row_block
from .ending import Ending, join_and_end, lines_of_tile


@triton.jit(do_not_specialize=["num_rows"])
def multiply_few_rows(
    x, weight, bias, norm_weight, output, partial, counters, epsilon, num_rows, num_outputs, num_inputs, line_length,
    FORM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, IS_GATED: tl.constexpr,
    ADDS: tl.constexpr, IS_EVEN: tl.constexpr, BLOCK_K: tl.constexpr = 0, IS_DEPENDENT: tl.constexpr = False,
):  # fmt: skip
    HAS_NORM: tl.constexpr = norm_weight is not None
    first_output = tl.program_id(0) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED).to(tl.int64)
    if IS_DEPENDENT:
        fetch(weight.numbers + lines * line_length, line_length, tl.program_id(1), PARTS)
    wait_for_previous(IS_DEPENDENT)
    x_rows = x + tl.minimum(tl.arange(0, BLOCK_M), num_rows - 1) * num_inputs
    sums, squares = sum_of_part(
        x_rows, weight, lines, norm_weight, tl.program_id(1), num_inputs, tl.zeros((BLOCK_N, BLOCK_M), tl.float32),
        FORM, BLOCK_K, PARTS, IS_EVEN,
    )  # fmt: skip
    ending = Ending(output, weight.scales if FORM.kind == "int8" else None, bias, partial, counters)
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
    adds: bool = True,
) -> Tensor:
    """[rows, outputs] in x's dtype; with `stream` the product is added to it in place, or takes its place."""
    most_normed = NORMED_ROWS if weight.kind in (*DTYPES, "int8") else NORMED_ROWS_OF_HALVES
    if norm is not None and (len(x) > most_normed or weight.order is not None):
        x, norm = rms_norm(x, norm.weight, norm.epsilon), None
    x = x.contiguous() if weight.order is None else x.index_select(1, weight.order)
    launch = partial(_launch, x, weight, bias, norm, is_gated, adds)

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
    adds: bool,
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
    tensors, form = as_kernels_take_it(weight)
    common = (bias, norm_weight, output, *joined, epsilon, rows, outputs, inputs, tensors.numbers.shape[1])
    options = {"BLOCK_M": row_block(rows), "IS_GATED": is_gated, "ADDS": adds and stream is not None, **choice.options}
    options |= dependent()
    multiply_few_rows[(tiles, parts)](x, tensors, *common, FORM=form, IS_EVEN=is_even(weight, choice), **options)
    return output
