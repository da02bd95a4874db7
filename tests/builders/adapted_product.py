"""A product with random LoRA adapters, as given and as kernels have them, and what these are to add."""

import numpy
import torch
from torch import Tensor

from penstock.kernels import LoraConfig, LoraMapping
from penstock.kernels.lora import LoraWeights
from penstock.kernels.reference.lora import add_lora
from penstock.kernels.torch.products import TorchLora


class AdaptedProduct:
    def __init__(
        self, lora: LoraWeights | None, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype
    ) -> None:
        """Fills `lora` with an adapter of each rank; 0 stands for none."""
        self.plain = TorchLora(in_features, outputs, LoraConfig(dtype, len(ranks), max(ranks)), torch.device("cpu"))
        generator = torch.Generator().manual_seed(in_features)
        for adapter, rank in enumerate(ranks):
            for part, out_features in enumerate(outputs):
                # One part of each adapter stays as it is, where there are several.
                if rank and not (len(outputs) > 1 and part == adapter % len(outputs)):
                    down = torch.randn(rank, in_features, generator=generator) / in_features**0.5
                    up = torch.randn(out_features, rank, generator=generator) / rank**0.5
                    for weights in (self.plain, lora):
                        if weights is not None:
                            weights.put(adapter, part, down, up)

    def expected(self, x: Tensor, adapters: list[int], start: Tensor) -> Tensor:
        """`start` with what the formula adds to it for rows of one token each."""
        adapted = LoraMapping.of(numpy.array(adapters), numpy.ones(len(adapters), numpy.int64))
        return start if adapted is None else add_lora.reference(start.clone(), x, self.plain, adapted)
