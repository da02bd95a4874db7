"""The norm that stands before a product, where the product computes it on the way."""

from typing import NamedTuple

from torch import Tensor


class Norm(NamedTuple):
    """x / sqrt(mean(x²) + ε) × weight, of each row."""

    weight: Tensor  # [in]
    epsilon: float
