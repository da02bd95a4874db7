"""The gated MLP: down(silu(gate(x)) × up(x)). Knows nothing of what surrounds it in a layer."""

from torch import Tensor

from ..checkpoint import Weights
from .linear import GateUpLinear, RowLinear


class MLP:
    def __init__(self, weights: Weights, hidden_size: int, intermediate_size: int) -> None:
        self.activate = weights.placement.ops.silu_mul
        self.gate_up = GateUpLinear(weights, ["gate_proj", "up_proj"], hidden_size, intermediate_size)
        self.down = RowLinear(weights.at("down_proj"), intermediate_size, hidden_size)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.activate(self.gate_up(x)))
