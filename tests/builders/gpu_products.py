"""Rows and weights of products on GPUs, and how one is held against its reference with what stands around it."""

import torch
from torch import Tensor

from penstock.kernels.gpu_weights import GpuWeight, pack
from penstock.kernels.operands import Norm, WeightFormat
from penstock.kernels.quantized_part import QuantizedPart
from penstock.kernels.registry import Op

CPU = torch.device("cpu")
# What a number may be off by, of the largest.
CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# What stands around a product: whether a norm, the stream, a gate.
AROUND = {"alone": (0, 0, 0), "normed": (1, 0, 0), "added": (0, 1, 0), "gated": (0, 0, 1), "normed, gated": (1, 0, 1)}
FORMATS = [*map(WeightFormat, ("fp32", "fp16", "bf16", "int8")), WeightFormat("int4", 64)]
# Rows that meet weights of these kinds, where they are not float32.
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "int4": torch.float16, "int8": torch.bfloat16}


def draws(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def weight_of(outputs: int, inputs: int, form: WeightFormat) -> GpuWeight:
    return pack([draws(outputs, inputs, seed=7) / inputs**0.5], form, CPU)


def grouped(outputs: int, inputs: int, group: int) -> GpuWeight:
    """As a checkpoint with zeros has it."""
    generator = torch.Generator().manual_seed(group)
    values = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 16, (outputs, -(-inputs // group)), dtype=torch.uint8, generator=generator)
    part = QuantizedPart(values, torch.rand(zeros.shape, generator=generator).half() / 16, zeros, group)
    return pack([part], WeightFormat("bf16"), CPU)


def assert_agrees(op: Op, x: Tensor, weight: GpuWeight, around: str, bias: Tensor | None = None) -> None:
    has_norm, adds, is_gated = AROUND[around]
    norm = Norm(draws(x.shape[1], seed=3, dtype=x.dtype) + 1, 1e-5) if has_norm else None
    streams = [draws(len(x), weight.out_features, seed=4, dtype=x.dtype) if adds else None for _ in range(2)]
    found = op.versions["triton"](x, weight, bias, norm, streams[0], bool(is_gated))
    expected = op.reference(x, weight, bias, norm, streams[1], bool(is_gated))
    assert found.dtype == x.dtype and found.shape == expected.shape
    assert not adds or found is streams[0]
    bound = CLOSE[x.dtype] * float(expected.float().abs().max())
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=bound)
