"""The MLP of a dense layer, gated or not, and the shared MLP of a sparse layer."""

from ...kernels.operations import StepField
from ..description.parts.activations import Activation
from ..description.parts.stored_names import USUAL
from ..weights.weights import Rows, Weights
from .linear import GateUpLinear, RowLinear


class MLP:
    """down(activation(gate(x)) × up(x)), or without a gate down(activation(up(x)))."""

    def __init__(
        self,
        weights: Weights,
        hidden_size: int,
        intermediate_size: int,
        activation: Activation = "silu",
        is_gated: bool = True,
        names: tuple[str, str, str] = USUAL.gate_up_down,
    ) -> None:
        gate, up, down = names
        self.ops = weights.ops
        self.activation, self.is_gated = activation, is_gated
        span = weights.inner_span(intermediate_size, down)
        inner = [gate, up] if is_gated else [up]
        self.gate_up = GateUpLinear(weights, inner, hidden_size, intermediate_size, span)
        self.down = RowLinear(weights.at(down), intermediate_size, hidden_size, span)

    def __call__(self, x: Rows, adapted: StepField | None = None) -> Rows:
        return self.down(self._activated(x, adapted), adapted)  # [T, hidden]

    def of_rank(self, x: Rows, adapted: StepField | None = None) -> Rows:
        """[T, hidden]: this rank's share of the sum."""
        return self.down.of_rank(self._activated(x, adapted), adapted)

    def _activated(self, x: Rows, adapted: StepField | None) -> Rows:
        inner = self.gate_up(x, adapted)  # [T, intermediate], this rank's share; twice as wide with a gate
        if self.is_gated:
            return self.ops.gate(inner, self.activation)  # [T, intermediate]
        return self.ops.apply_activation(inner, self.activation)  # [T, intermediate]
