"""Examples for kernels/reference/products.py, quantized.py and lora.py, made from a seed."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import numpy
import torch
from builders.gpu_products import grouped, random_part
from torch import Tensor

from penstock.kernels import LoraConfig, LoraMapping
from penstock.kernels.lora import LoraWeights
from penstock.kernels.operands import Norm, WeightFormat
from penstock.kernels.reference.lora import add_lora
from penstock.kernels.stored.block_kinds import CODES, KINDS
from penstock.kernels.torch.arrays import array_of, numpy_dtype, tensor_of
from penstock.kernels.torch.packed.gpu_blocks import RUN, pack_blocks
from penstock.kernels.torch.packed.gpu_float8 import Float8Weight
from penstock.kernels.torch.packed.gpu_weights import GpuWeight, pack
from penstock.kernels.torch.packed.torch_weights import PackedWeight
from penstock.kernels.torch.packed.torch_weights import pack as pack_plain
from penstock.kernels.torch.products import TorchLora


def linear_inputs(seed: int) -> Iterator[tuple[Tensor, PackedWeight, Tensor | None]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, out_features, in_features in ((1, 96, 56), (5, 31, 64), (33, 130, 72)):
        weight = torch.randn(out_features, in_features, generator=generator)
        bias = torch.randn(out_features, generator=generator) if rows > 1 else None
        yield torch.randn(rows, in_features, generator=generator), pack_plain(weight), bias


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


def float8_inputs(seed: int) -> Inputs:
    """With scales by output: no CPU has products with those by block."""
    generator = torch.Generator().manual_seed(seed)
    for rows, outputs, inputs in ((1, 16, 32), (5, 48, 256), (33, 160, 96)):
        values, scales = (torch.randn(outputs, width, generator=generator) for width in (inputs, 1))
        weight = Float8Weight(values.to(torch.float8_e4m3fn), scales.abs())
        bias = torch.randn(outputs, generator=generator) if rows % 3 else None
        yield torch.randn(rows, inputs, generator=generator).bfloat16(), weight, bias


def int4_inputs(seed: int) -> Inputs:
    yield from _products([WeightFormat("int4", group_size) for group_size in (32, 48, 128, 1000)], seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(160, generator=generator).int()
    yield torch.randn(5, 160, generator=generator), grouped(50, 160, 32, order), None


def integer_inputs(seed: int) -> Inputs:
    yield from int8_inputs(seed)
    yield from int4_inputs(seed)
    yield from islice(block_inputs(seed), seed % 3, None, 3)


def block_inputs(seed: int) -> Inputs:
    """One type for each kind."""
    generator = torch.Generator().manual_seed(seed)
    for kind, type in {kind: type for type, kind in KINDS.items()}.items():
        rows, outputs = torch.randint(1, 70, (2,), generator=generator).tolist()
        inputs = CODES[kind].block * int(
            torch.randint(1, 9 if CODES[kind].block == RUN else 4, (), generator=generator)
        )
        weight = pack_blocks([random_part(type, outputs, inputs, seed)], _CPU)
        bias = torch.randn(outputs, generator=generator) if rows % 2 else None
        yield torch.randn(rows, inputs, generator=generator), weight, bias


# How a product is used in a layer: (rows, outputs, few_rows_inputs, has a norm, is added to the stream, is gated).
_USES = (
    (1, 33, 64, True, False, False),
    (3, 70, 200, False, True, False),
    (17, 40, 144, False, False, True),
    (5, 48, 96, True, False, True),
)


_FORMS = (
    *map(WeightFormat, ("fp32", "fp16", "bf16", "int8")),
    *(WeightFormat("int4", group_size) for group_size in (32, 64, 128, 1000)),
)


def few_rows_inputs(seed: int) -> Iterator[tuple[Any, ...]]:
    yield from _of_few(seed)
    # And of a row alone, which versions may compute in another way.
    for x, weight, bias, norm, stream, is_gated in _of_few(seed):
        yield x[:1], weight, bias, norm, None if stream is None else stream[:1], is_gated


def _of_few(seed: int) -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(seed)
    for number, form in enumerate(_FORMS):
        for use in (_USES[number % 4], _USES[(number + 1) % 4]):
            _, outputs, few_rows_inputs, *_ = use
            weight = pack([torch.randn(outputs, few_rows_inputs, generator=generator)], form, _CPU)
            yield _arguments(weight, use, generator)
    for order in (None, torch.randperm(160, generator=generator).int()):
        yield _arguments(grouped(50, 160, 32, order), (2, 50, 160, True, True, False), generator)
    for number, type in enumerate(("Q4_0", "Q4_K", "Q5_1", "Q5_K", "Q6_K", "Q8_0", "IQ4_XS", "MXFP4")):
        rows, outputs, _, *around = _USES[number % 4]
        few_rows_inputs = 256 if "_K" in type or "XS" in type else 96
        weight = pack_blocks([random_part(type, outputs, few_rows_inputs, seed)], _CPU)
        yield _arguments(weight, (rows, outputs, few_rows_inputs, *around), generator)  # type: ignore[arg-type]


def _arguments(
    weight: GpuWeight, use: tuple[int, int, int, bool, bool, bool], generator: torch.Generator
) -> tuple[Any, ...]:
    rows, outputs, few_rows_inputs, has_norm, adds, is_gated = use
    x = torch.randn(rows, few_rows_inputs, generator=generator)
    if weight.values.dtype in (torch.float16, torch.bfloat16):
        # A norm would be rounded by each version in a way of its own, and whole numbers are not.
        x, has_norm = x.round(), False
    norm = Norm(torch.rand(few_rows_inputs, generator=generator) + 0.5, 1e-6) if has_norm else None
    bias = torch.randn(outputs, generator=generator) if rows > 1 else None
    stream = torch.randn(rows, outputs, generator=generator) if adds else None
    return x, weight, bias, norm, stream, is_gated


def row_inputs(seed: int) -> Iterator[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 56), (7, 130)):
        x = torch.randn(rows, width, generator=generator) * 8
        yield (x,)
        yield (x.half(),)
    odd = x.clone()
    odd[1], odd[2, 3], odd[3, 5], odd[4] = 0, torch.inf, torch.nan, x[4] * 1e-36
    yield (odd,)


class AdaptedProduct:
    def __init__(
        self, lora: LoraWeights | None, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype
    ) -> None:
        """Fills `lora` with an adapter of each rank; 0 stands for none."""
        self.plain = TorchLora(
            in_features, outputs, LoraConfig(numpy_dtype(dtype), len(ranks), max(ranks)), torch.device("cpu")
        )
        generator = torch.Generator().manual_seed(in_features)
        for adapter, rank in enumerate(ranks):
            for part, out_features in enumerate(outputs):
                # One part of each adapter stays as it is, where there are several.
                if rank and not (len(outputs) > 1 and part == adapter % len(outputs)):
                    down = torch.randn(rank, in_features, generator=generator) / in_features**0.5
                    up = torch.randn(out_features, rank, generator=generator) / rank**0.5
                    for weights in (self.plain, lora):
                        if weights is not None:
                            weights.put(adapter, part, array_of(down), array_of(up))

    def expected(self, x: Tensor, adapters: list[int], start: Tensor) -> Tensor:
        """`start` with what the formula adds to it for rows of one token each."""
        adapted = LoraMapping.of(numpy.array(adapters), numpy.ones(len(adapters), numpy.int64), tensor_of)
        return start if adapted is None else add_lora.reference(start.clone(), x, self.plain, adapted)


# Inputs, the outputs of each part, the rank of each adapter (0: none), and which adapter each row of tokens has.
_ADAPTED = (
    (24, [40], [5], [0]),
    (70, [33, 17, 8], [1, 0, 16, 33], [2, -1, 0, 3, 1, 2, 2]),
    (150, [96, 40], [7, 40, 3], [0, 1, 2] * 15),
)


def lora_inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, TorchLora, LoraMapping]]:
    generator = torch.Generator().manual_seed(seed)
    for in_features, outputs, ranks, adapters in _ADAPTED:
        lora = AdaptedProduct(None, in_features, outputs, ranks, torch.float32).plain
        counts = numpy.arange(len(adapters)) % 3 + 1
        adapted = LoraMapping.of(numpy.array(adapters), counts, tensor_of)
        assert adapted is not None
        total = int(counts.sum())
        product = torch.randn(total, sum(outputs), generator=generator)
        yield product, torch.randn(total, in_features, generator=generator), lora, adapted
