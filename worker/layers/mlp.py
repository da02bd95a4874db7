"""The gated MLP of a dense layer, and the one that all tokens of a sparse layer share."""

from typing import Any

from ..weights.weights import Weights
from .linear import GateUpLinear, RowLinear


class MLP:
    """down(silu(gate(x)) × up(x))."""

    def __init__(self, weights: Weights, hidden_size: int, intermediate_size: int) -> None:
        self.ops = weights.placement.ops
        span = weights.inner_span(intermediate_size, "down_proj")
        self.gate_up = GateUpLinear(weights, ["gate_proj", "up_proj"], hidden_size, intermediate_size, span)
        self.down = RowLinear(weights.at("down_proj"), intermediate_size, hidden_size, span)

    def __call__(self, x: Any, adapted: Any | None = None) -> Any:
        return self.down(self._activated(x, adapted), adapted)  # [T, hidden]

    def of_rank(self, x: Any, adapted: Any | None = None) -> Any:
        """[T, hidden]: this rank's share of the sum."""
        return self.down.of_rank(self._activated(x, adapted), adapted)

    def _activated(self, x: Any, adapted: Any | None) -> Any:
        gate_up = self.gate_up(x, adapted)  # [T, 2 × intermediate], of this rank's share
        return self.ops.silu_mul(gate_up)  # [T, intermediate]
