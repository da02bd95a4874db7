"""Examples for kernels/reference/lora.py, made from a seed."""

from collections.abc import Iterator

import numpy
import torch
from torch import Tensor

from penstock.kernels import Adapted, LoraForm
from penstock.kernels.torch.lora import TorchLora

# Inputs, the outputs of each part, the rank of each adapter (0: none), and which adapter each row of tokens has.
_CASES = (
    (24, [40], [5], [0]),
    (70, [33, 17, 8], [1, 0, 16, 33], [2, -1, 0, 3, 1, 2, 2]),
    (150, [96, 40], [7, 40, 3], [0, 1, 2] * 15),
)


def inputs(seed: int) -> Iterator[tuple[Tensor, Tensor, TorchLora, Adapted]]:
    generator = torch.Generator().manual_seed(seed)
    for in_features, outputs, ranks, adapters in _CASES:
        lora = TorchLora(in_features, outputs, LoraForm(torch.float32, len(ranks), max(ranks)), torch.device("cpu"))
        for adapter, rank in enumerate(ranks):
            for part, out_features in enumerate(outputs):
                # One part of each adapter stays as it is, where there are several.
                if rank and not (len(outputs) > 1 and part == adapter % len(outputs)):
                    down = torch.randn(rank, in_features, generator=generator) / in_features**0.5
                    lora.put(adapter, part, down, torch.randn(out_features, rank, generator=generator) / rank**0.5)
        counts = numpy.arange(len(adapters)) % 3 + 1
        adapted = Adapted.of(numpy.array(adapters), counts)
        assert adapted is not None
        total = int(counts.sum())
        product = torch.randn(total, sum(outputs), generator=generator)
        yield product, torch.randn(total, in_features, generator=generator), lora, adapted
