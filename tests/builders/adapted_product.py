"""A product with random LoRA adapters, as given and as kernels have them, and what these are to add."""

import torch
from torch import Tensor

from penstock.kernels.lora import LoraWeights


class AdaptedProduct:
    def __init__(
        self, lora: LoraWeights, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype
    ) -> None:
        """Fills `lora` with an adapter of each rank; 0 stands for none."""
        self.outputs = outputs
        self.given: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # by adapter and part
        generator = torch.Generator().manual_seed(in_features)
        for adapter, rank in enumerate(ranks):
            for part, out_features in enumerate(outputs):
                # One part of each adapter stays as it is, where there are several.
                if rank and not (len(outputs) > 1 and part == adapter % len(outputs)):
                    down = torch.randn(rank, in_features, generator=generator) / in_features**0.5
                    up = torch.randn(out_features, rank, generator=generator) / rank**0.5
                    self.given[adapter, part] = down.to(dtype), up.to(dtype)
                    lora.put(adapter, part, down, up)

    def expected(self, x: Tensor, adapters: list[int], start: Tensor) -> Tensor:
        """`start` with what the formula adds to it."""
        output = start.double()
        for (adapter, part), (down, up) in self.given.items():
            rows = torch.tensor(adapters) == adapter
            first = sum(self.outputs[:part])
            columns = slice(first, first + self.outputs[part])
            output[rows, columns] += x[rows].double() @ down.double().T @ up.double().T
        return output.to(start.dtype)
