"""Mixtures of experts as GPUs compute them: tokens sorted by expert in blocks, and products with packed weights."""

import torch
from torch import Tensor

from ..experts import ExpertBlocks, ExpertWeights, Routes
from ..operands import DTYPES
from ..registry import op
from ..torch.packed.gpu_blocks import GpuBlocks, unpacked_blocks
from ..torch.packed.gpu_experts import GpuExperts
from ..torch.packed.gpu_weights import unpacked
from .experts import activate, weighted_sum
from .quantized import linear_quantized


@op(tolerance=0)
def blocks_by_expert(chosen: Tensor, first: int, num_experts: int, size: int) -> ExpertBlocks:
    """Sort the pairs of token and expert, [T, top_k], by expert into blocks; experts begin at `first` here."""
    count = ExpertBlocks.num_blocks(chosen.numel(), num_experts, size)
    blocks = ExpertBlocks(
        torch.full((count,), -1, dtype=torch.int32, device=chosen.device),
        torch.full((count, size), -1, dtype=torch.int32, device=chosen.device),
    )
    block = 0
    for number in range(num_experts):
        for own in (chosen.flatten() == first + number).nonzero()[:, 0].split(size):
            if len(own):
                blocks.experts[block], blocks.pairs[block, : len(own)] = number, own.to(torch.int32)
                block += 1
    return blocks


@op(tolerance=2e-3)
def experts_gpu(x: Tensor, routes: Routes, weights: ExpertWeights) -> Tensor:
    """[T, hidden]: as `experts`, with weights as GPUs keep them; what an expert computes inside is rounded as x is."""

    def output(rows: Tensor, number: int) -> Tensor:
        gate_up = _product(rows, weights.gate_up, weights.gate_up_bias, number)
        inner = activate.reference(gate_up, weights.activation).to(x.dtype)
        return _product(inner, weights.down, weights.down_bias, number)

    return weighted_sum(x, routes, weights.first, weights.num_experts, output)


experts_gpu_invariant = experts_gpu.invariant()


def _product(rows: Tensor, experts: GpuExperts, biases: Tensor | None, number: int) -> Tensor:
    """The rows times one expert's weight, in float32."""
    weight, bias = experts.of(number), None if biases is None else biases[number].float()
    if experts.quantizes_rows:
        return linear_quantized(rows.float(), unpacked(weight), bias)
    if isinstance(weight, GpuBlocks):
        product = rows.float() @ unpacked_blocks(weight).to(rows.dtype).float().T
    elif weight.kind in DTYPES:
        product = rows.to(weight.values.dtype).float() @ weight.values.float().T
    else:
        product = rows.float() @ unpacked(weight).dequantized().T
    return product if bias is None else product + bias
