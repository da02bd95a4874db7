"""Products of rows with weights of several kinds that stand side by side: query and key in one, value in another.

Each is a separate product, and their outputs are written next to one another.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...operands import Kind
from ...torch.packed.gpu_weights import GpuWeight

Product = Callable[[Tensor, GpuWeight, Tensor | None], Tensor]  # of rows, a weight and its bias


class JoinedWeight(NamedTuple):
    """Several weights that act as one matrix."""

    products: tuple[Product, ...]
    weights: tuple[GpuWeight, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(weight.kind for weight in self.weights)


def linear_joined(x: Tensor, weight: JoinedWeight, bias: Tensor | None) -> Tensor:
    sizes = [each.out_features for each in weight.weights]
    biases = [None] * len(sizes) if bias is None else bias.split(sizes)
    return torch.cat([product(x, own, part) for product, own, part in zip(*weight, biases, strict=True)], 1)
