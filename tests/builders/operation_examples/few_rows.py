"""Examples for kernels/reference/products.py, made from a seed."""

from collections.abc import Iterator
from typing import Any

import torch
from builders.ggml_parts import random_part

from penstock.kernels.gpu_blocks import pack_blocks
from penstock.kernels.gpu_weights import GpuWeight, pack
from penstock.kernels.operands import Norm, WeightFormat
from penstock.kernels.quantized_part import QuantizedPart

_CPU = torch.device("cpu")


# How a product is used in a layer: (rows, outputs, inputs, has a norm, is added to the stream, is gated).
_USES = (
    (1, 33, 64, True, False, False),
    (3, 70, 200, False, True, False),
    (17, 40, 144, False, False, True),
    (5, 48, 96, True, False, True),
)


_FORMS = (
    WeightFormat("fp32"),
    WeightFormat("fp16"),
    WeightFormat("bf16"),
    WeightFormat("int8"),
    WeightFormat("int4", 32),
    WeightFormat("int4", 64),
    WeightFormat("int4", 128),
    WeightFormat("int4", 1000),
)


def inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    yield from _of_few(seed)
    # And of a row alone, which versions may compute in another way.
    for x, weight, bias, norm, stream, is_gated in _of_few(seed):
        yield x[:1], weight, bias, norm, None if stream is None else stream[:1], is_gated


def _of_few(seed: int) -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(seed)
    for number, form in enumerate(_FORMS):
        for use in (_USES[number % 4], _USES[(number + 1) % 4]):
            _, outputs, inputs, *_ = use
            weight = pack([torch.randn(outputs, inputs, generator=generator)], form, _CPU)
            yield _arguments(weight, use, generator)
    for order in (None, torch.randperm(160, generator=generator).int()):
        values = torch.randint(0, 16, (50, 160), dtype=torch.uint8, generator=generator)
        zeros = torch.randint(0, 16, (50, 5), dtype=torch.uint8, generator=generator)
        scales = torch.rand(50, 5, generator=generator).half() / 16
        part = QuantizedPart(values, scales, zeros, 32, order)
        yield _arguments(pack([part], WeightFormat("fp32"), _CPU), (2, 50, 160, True, True, False), generator)
    for number, type in enumerate(("Q4_0", "Q4_K", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "IQ4_XS", "MXFP4")):
        rows, outputs, _, *around = _USES[number % 4]
        inputs = 256 if "_K" in type or "XS" in type else 96
        weight = pack_blocks([random_part(type, outputs, inputs, seed)], _CPU)
        yield _arguments(weight, (rows, outputs, inputs, *around), generator)  # type: ignore[arg-type]


def _arguments(
    weight: GpuWeight, use: tuple[int, int, int, bool, bool, bool], generator: torch.Generator
) -> tuple[Any, ...]:
    rows, outputs, inputs, has_norm, adds, is_gated = use
    x = torch.randn(rows, inputs, generator=generator)
    if weight.values.dtype in (torch.float16, torch.bfloat16):
        # A norm would be rounded by each version in a way of its own, and whole numbers are not.
        x, has_norm = x.round(), False
    norm = Norm(torch.rand(inputs, generator=generator) + 0.5, 1e-6) if has_norm else None
    bias = torch.randn(outputs, generator=generator) if rows > 1 else None
    stream = torch.randn(rows, outputs, generator=generator) if adds else None
    return x, weight, bias, norm, stream, is_gated
