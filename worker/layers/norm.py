"""Root-mean-square norms: of a whole row, and of each head of query and key.

Knows nothing of where they stand in a layer.
"""

import torch
from torch import Tensor

from ..checkpoint import Weights


class RMSNorm:
    """x / sqrt(mean(x²) + ε) × weight."""

    def __init__(self, weights: Weights, size: int, epsilon: float) -> None:
        self.normalize = weights.placement.ops.rms_norm
        self.weight = weights.vector("weight", (size,))
        self.epsilon = epsilon

    def __call__(self, x: Tensor) -> Tensor:
        return self.normalize(x, self.weight, self.epsilon)


class HeadNorm(RMSNorm):
    """Query and key heads in one go: [T, heads, head_dim] with query's weight first, then key's."""

    def __init__(self, weights: Weights, num_heads: int, num_kv_heads: int, head_dim: int, epsilon: float) -> None:
        super().__init__(weights.at("q_norm"), head_dim, epsilon)
        key_weight = weights.at("k_norm").vector("weight", (head_dim,))
        self.weight = torch.cat((self.weight.expand(num_heads, -1), key_weight.expand(num_kv_heads, -1)))
