"""Grouped products: a block of pairs meets the weight of the expert that they share, a tile of its outputs a program.

  gate and up   x's rows, one for the top_k pairs of a token; the activation of both sums is stored for each pair
  down          the rows that this left, one for each pair

Programs of blocks that are empty end at once. Lines of a tile, its gating and its sums are those of few_rows.py; inputs
are not cut into parts, since there are as many tiles as experts make them. Weights in ggml's blocks have a kernel of
their own (products_blocks.py).
"""

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ...experts import ExpertBlocks, GatedActivation
from ...torch.packed.gpu_blocks import SPAN, GpuBlocks
from ...torch.packed.gpu_experts import GpuExperts
from ...torch.packed.gpu_weights import half_block
from ..launch.compiled import Example
from ..launch.tuning import LaunchConfig
from ..products.tiles.part_sums import sum_of_part
from ..products.tiles.part_sums_blocks import constants, planes_of
from ..products.tiles.part_sums_int4 import sum_of_int4_part
from ..products.tiles.tiles import finished
from .choice import FEW_PAIRS, MANY_PAIRS, TUNINGS
from .products_blocks import multiply_experts_blocks
from .tile import Activation, outputs_and_lines, pairs_and_rows, store_results


@triton.jit
def multiply_experts(
    x, values, scales, row_scales, bias, output, experts, pairs, slope, shift, limit, cubic, num_outputs, num_inputs,
    SHARE: tl.constexpr, IS_GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    IS_EVEN: tl.constexpr,
):  # fmt: skip
    expert = tl.load(experts + tl.program_id(0))
    if expert >= 0:
        own, rows = pairs_and_rows(pairs, SHARE, SIZE)
        first_output, lines = outputs_and_lines(expert, num_outputs, BLOCK_N, IS_GATED)
        met_type: tl.constexpr = x.dtype.element_ty if values.dtype.element_ty == tl.int8 else values.dtype.element_ty
        zeros = tl.zeros((BLOCK_N, SIZE), tl.int32 if met_type == tl.int8 else tl.float32)
        sums, _ = sum_of_part(
            x + rows * num_inputs, values + lines * num_inputs, None, 0, num_inputs, zeros, BLOCK_K, 1, IS_EVEN,
            met_type,
        )  # fmt: skip
        scales_of_rows = None if row_scales is None else tl.load(row_scales + rows)
        results = finished(sums, scales, scales_of_rows, bias, lines)
        store_results(results, output, own, first_output, num_outputs, Activation(slope, shift, limit, cubic), IS_GATED)


@triton.jit
def multiply_experts_int4(
    x, values, group_scales, zeros, bias, output, experts, pairs, slope, shift, limit, cubic, num_outputs, num_inputs,
    SHARE: tl.constexpr, IS_GATED: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr,
    HALF: tl.constexpr, IS_EVEN: tl.constexpr,
):  # fmt: skip
    expert = tl.load(experts + tl.program_id(0))
    if expert >= 0:
        own, rows = pairs_and_rows(pairs, SHARE, SIZE)
        first_output, lines = outputs_and_lines(expert, num_outputs, BLOCK_N, IS_GATED)
        blocks = tl.cdiv(num_inputs, 2 * HALF)
        groups = tl.cdiv(blocks * 2 * HALF, GROUP)
        own_zeros = None if zeros is None else zeros + lines * groups
        sums, _ = sum_of_int4_part(
            x + rows * num_inputs, values + lines * (blocks * HALF), group_scales + lines * groups, own_zeros, None,
            0, num_inputs, tl.zeros((BLOCK_N, SIZE), tl.float32), GROUP, HALF, 1, IS_EVEN, x.dtype.element_ty,
        )  # fmt: skip
        results = finished(sums, None, None, bias, lines)
        store_results(results, output, own, first_output, num_outputs, Activation(slope, shift, limit, cubic), IS_GATED)


def multiply(
    x: Tensor,
    row_scales: Tensor | None,
    experts: GpuExperts,
    bias: Tensor | None,
    blocks: ExpertBlocks,
    output: Tensor,
    activation: GatedActivation | None,
    choice: LaunchConfig,
) -> Tensor:
    """Fills `output` [pairs, outputs], of pairs whose experts are here, from rows of x that as many pairs share; with
    an activation there are half as many outputs as lines."""
    weight, is_gated, (num_blocks, size) = experts.weight, activation is not None, blocks.pairs.shape
    tile = choice["BLOCK_N"] // (1 + is_gated)
    numbers = activation or GatedActivation()
    figures = (numbers.slope, numbers.shift, numbers.limit, numbers.cubic)
    common = (bias, output, *blocks, *figures, output.shape[1], weight.in_features)
    options: dict[str, Any] = {"SHARE": len(output) // len(x), "IS_GATED": is_gated, "SIZE": size, **choice.options}
    grid = (num_blocks, triton.cdiv(output.shape[1], tile))
    if isinstance(weight, GpuBlocks):
        options |= constants(weight.codes) | {"IS_EVEN": weight.in_features % SPAN == 0}
        multiply_experts_blocks[grid](x, *planes_of(weight), *common, **options)
    elif weight.kind == "int4":
        options |= {"GROUP": weight.group_size, "HALF": weight.half}
        is_even = weight.in_features % (2 * weight.half) == 0
        weights = (weight.values, weight.scales, weight.zeros)
        multiply_experts_int4[grid](x, *weights, *common, IS_EVEN=is_even, **options)
    else:
        is_even = weight.in_features % choice["BLOCK_K"] == 0
        multiply_experts[grid](x, weight.values, weight.scales, row_scales, *common, IS_EVEN=is_even, **options)
    return output


def examples() -> Iterator[Example]:
    """Qwen3-30B-A3B's experts and gpt-oss-20b's: steps of answers, and of prompts."""
    for kind, group, gated, shape in (
        ("bf16", 0, True, (1536, 2048)),
        ("bf16", 0, False, (2048, 768)),
        ("fp32", 0, True, (1536, 2048)),
        ("int8", 0, True, (1536, 2048)),
        ("int8, rows", 0, True, (1536, 2048)),
        ("int4", 64, True, (1536, 2048)),
        ("int4, zeros", 128, False, (2048, 768)),
        ("int4", 32, True, (5760, 2880)),
    ):
        for size in (FEW_PAIRS, MANY_PAIRS):
            yield _example(kind, group, size, gated, shape)


def _example(kind: str, group: int, size: int, is_gated: bool, shape: tuple[int, int]) -> Example:
    number = "fp32" if kind == "fp32" else "bf16"
    width = {"fp32": 4, "int8, rows": 1}.get(kind, 2)
    choice = TUNINGS[kind.split(",")[0]].default(90, (width, size, *shape, group, int(is_gated)))
    pointers = {"x": "*i8" if width == 1 else f"*{number}", "bias": f"*{number}", "output": f"*{number}"}
    pointers |= {"experts": "*i32", "pairs": "*i32"}
    pointers |= {
        "int8": {"values": "*i8", "scales": "*fp32"},
        "int8, rows": {"values": "*i8", "scales": "*fp32", "row_scales": "*fp32"},
        "int4": {"values": "*u8", "group_scales": "*fp16"},
        "int4, zeros": {"values": "*u8", "group_scales": "*fp16", "zeros": "*u8"},
    }.get(kind, {"values": f"*{number}"})
    sizes = dict.fromkeys(Activation._fields, "fp32") | dict.fromkeys(("num_outputs", "num_inputs"), "i32")
    kernel, cuts = multiply_experts, {}
    if group:
        kernel, cuts = multiply_experts_int4, {"GROUP": group, "HALF": half_block(group)}
    constants = {**dict(choice.blocks), **cuts, "SHARE": 8 if is_gated else 1, "IS_GATED": is_gated, "SIZE": size}
    constants |= {"IS_EVEN": True}
    absent = [name for name in kernel.arg_names if name not in {**pointers, **sizes, **constants}]
    return Example(
        f"experts, {kind} {group}, blocks of {size}, {'gated' if is_gated else 'down'}", kernel,
        {**pointers, **sizes}, constants | dict.fromkeys(absent), choice.num_warps, choice.num_stages,
        (*pointers, "num_outputs", "num_inputs"),
    )  # fmt: skip
