"""A program's tile of a grouped product: which pairs and lines it has, and how its sums are gated and stored."""

from typing import NamedTuple

import triton
import triton.language as tl

from ..products.few_rows.ending import lines_of_tile


class Activation(NamedTuple):
    """The numbers of `GatedActivation`, as a kernel takes them."""

    slope: tl.tensor
    shift: tl.tensor
    limit: tl.tensor
    cubic: tl.tensor


@triton.jit
def pairs_and_rows(pairs, SHARE: tl.constexpr, SIZE: tl.constexpr):
    """This block's pairs, and the rows that they read; those that are none read the first one."""
    own = tl.load(pairs + tl.program_id(0) * SIZE + tl.arange(0, SIZE))
    return own, (tl.maximum(own, 0) // SHARE).to(tl.int64)


@triton.jit
def outputs_and_lines(expert, num_outputs, BLOCK_N: tl.constexpr, IS_GATED: tl.constexpr):
    """This tile's first output, and its lines in the weight of all experts."""
    first_output = tl.program_id(1) * (BLOCK_N // 2 if IS_GATED else BLOCK_N)
    lines = lines_of_tile(first_output, num_outputs, BLOCK_N, IS_GATED)
    return first_output, lines + expert.to(tl.int64) * num_outputs * (2 if IS_GATED else 1)


@triton.jit
def store_results(results, output, own, first_output, num_outputs, activation, IS_GATED: tl.constexpr):
    """Results [lines, pairs]."""
    BLOCK: tl.constexpr = results.shape[0] // 2 if IS_GATED else results.shape[0]
    if IS_GATED:
        gate, up = tl.split(tl.permute(tl.reshape(results, [BLOCK, 2, results.shape[1]]), [0, 2, 1]))
        gate = tl.minimum(gate, activation.limit)
        up = tl.minimum(tl.maximum(up, -activation.limit), activation.limit)
        inner = tl.where(activation.cubic != 0, gate + activation.cubic * gate * gate * gate, gate)
        results = gate / (1 + tl.exp(-activation.slope * inner)) * (up + activation.shift)
    outputs = first_output + tl.arange(0, BLOCK)
    is_there = (outputs < num_outputs)[:, None] & (own >= 0)[None, :]
    targets = output + own.to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    tl.store(targets, results.to(output.dtype.element_ty), mask=is_there)
