"""A norm that the product behind it computes on the way."""

from typing import NamedTuple

from torch import Tensor


class Norm(NamedTuple):
    """x / sqrt(mean(x²) + ε) × weight, of each row."""

    weight: Tensor  # [in]
    epsilon: float
