"""Examples for kernels/reference/lora.py, made from a seed."""

from collections.abc import Iterator

import numpy
import torch
from builders.adapted_product import AdaptedProduct
from torch import Tensor

from penstock.kernels import LoraMapping
from penstock.kernels.torch.products import TorchLora

# Inputs, the outputs of each part, the rank of each adapter (0: none), and which adapter each row of tokens has.
_CASES = (
    (24, [40], [5], [0]),
    (70, [33, 17, 8], [1, 0, 16, 33], [2, -1, 0, 3, 1, 2, 2]),
    (150, [96, 40], [7, 40, 3], [0, 1, 2] * 15),
)


def inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, TorchLora, LoraMapping]]:
    generator = torch.Generator().manual_seed(seed)
    for in_features, outputs, ranks, adapters in _CASES:
        lora = AdaptedProduct(None, in_features, outputs, ranks, torch.float32).plain
        counts = numpy.arange(len(adapters)) % 3 + 1
        adapted = LoraMapping.of(numpy.array(adapters), counts)
        assert adapted is not None
        total = int(counts.sum())
        product = torch.randn(total, sum(outputs), generator=generator)
        yield product, torch.randn(total, in_features, generator=generator), lora, adapted
