"""The root-mean-square norm of the residual stream."""

from typing import Any

from ..weights.checkpoint import Weights


class RMSNorm:
    """x / sqrt(mean(x²) + ε) × weight, of the stream after what the last sublayer adds to it."""

    def __init__(self, weights: Weights, size: int, epsilon: float) -> None:
        self.ops = weights.placement.ops
        self.weight = weights.vector("weight", (size,))  # [hidden]
        self.epsilon = epsilon

    def __call__(self, stream: Any, update: Any | None = None) -> Any:
        return self.ops.add_rms_norm(stream, update, self.weight, self.epsilon)  # [T, hidden]
