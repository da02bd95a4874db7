"""The gated MLP: down(silu(gate(x)) × up(x))."""

from typing import Any

from ..weights.checkpoint import Weights
from .linear import GateUpLinear, RowLinear


class MLP:
    def __init__(self, weights: Weights, hidden_size: int, intermediate_size: int) -> None:
        self.ops = weights.placement.ops
        self.gate_up = GateUpLinear(weights, ["gate_proj", "up_proj"], hidden_size, intermediate_size)
        self.down = RowLinear(weights.at("down_proj"), intermediate_size, hidden_size)

    def __call__(self, x: Any, adapted: Any | None = None) -> Any:
        gate_up = self.gate_up(x, adapted)  # [T, 2 × intermediate], of this rank's share
        activated = self.ops.silu_mul(gate_up)  # [T, intermediate]
        return self.down(activated, adapted)  # [T, hidden]
