"""Examples for kernels/reference/products.py, made from a seed."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

import torch
from builders.ggml_parts import random_part
from torch import Tensor

from penstock.kernels.block_kinds import CODES
from penstock.kernels.gpu_blocks import KINDS, RUN, pack_blocks
from penstock.kernels.gpu_weights import GpuWeight, pack
from penstock.kernels.operands import WeightFormat
from penstock.kernels.quantized_part import QuantizedPart

Inputs = Iterator[tuple[Tensor, GpuWeight, Tensor | None]]


_CPU = torch.device("cpu")


_SHAPES = ((1, 33, 64), (3, 70, 200), (17, 40, 144))


def _products(forms: Sequence[WeightFormat], seed: int) -> Inputs:
    """One after another of the shapes, each with a weight of one after another of the forms."""
    generator = torch.Generator().manual_seed(seed)
    for form, (rows, out_features, in_features) in zip(forms, cycle(_SHAPES)):
        x = torch.randn(rows, in_features, generator=generator)
        weight = torch.randn(out_features, in_features, generator=generator)
        bias = torch.randn(out_features, generator=generator) if rows > 1 else None
        yield x, pack([weight], form, _CPU), bias


def float_inputs(seed: int) -> Inputs:
    yield from _products([WeightFormat("fp32")] * 3, seed)
    # Whole numbers, for versions may round in different ways to formats in which these are exact.
    halves = [WeightFormat("fp16")] * 3 + [WeightFormat("bf16")] * 3
    yield from ((x.round(), weight, bias) for x, weight, bias in _products(halves, seed))


def int8_inputs(seed: int) -> Inputs:
    return _products([WeightFormat("int8")] * 3, seed)


def int4_inputs(seed: int) -> Inputs:
    yield from _products([WeightFormat("int4", group_size) for group_size in (32, 48, 128, 1000)], seed)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 16, (50, 160), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 16, (50, 5), dtype=torch.uint8, generator=generator)
    scales = torch.rand(50, 5, generator=generator).half() / 16
    order = torch.randperm(160, generator=generator).int()
    part = QuantizedPart(values, scales, zeros, 32, order)
    yield torch.randn(5, 160, generator=generator), pack([part], WeightFormat("fp32"), _CPU), None


def integer_inputs(seed: int) -> Inputs:
    yield from int8_inputs(seed)
    yield from int4_inputs(seed)
    yield from islice(block_inputs(seed), seed % 3, None, 3)


def block_inputs(seed: int) -> Inputs:
    """Of each kind a type."""
    generator = torch.Generator().manual_seed(seed)
    for kind, type in {kind: type for type, kind in KINDS.items()}.items():
        rows, outputs = torch.randint(1, 70, (2,), generator=generator).tolist()
        inputs = CODES[kind].block * int(
            torch.randint(1, 9 if CODES[kind].block == RUN else 4, (), generator=generator)
        )
        weight = pack_blocks([random_part(type, outputs, inputs, seed)], _CPU)
        bias = torch.randn(outputs, generator=generator) if rows % 2 else None
        yield torch.randn(rows, inputs, generator=generator), weight, bias
