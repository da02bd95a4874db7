"""Experts beside an MLP that all tokens go through, each with norms of its own; so has what the router reads."""

from typing import Any

from ..description.config import ModelConfig
from ..description.parts.mixtures import ExpertsConfig, NormsBeside
from ..weights.weights import Weights
from .experts import Experts
from .mlp import MLP
from .norm import Norm


class ExpertsBesideMLP(Experts):
    """norm(mlp(norm(x))) + norm(experts(norm(x))), of the stream x."""

    def __init__(
        self, weights: Weights, config: ModelConfig, experts: ExpertsConfig, norms: NormsBeside, mlp: MLP
    ) -> None:
        size, epsilon, form = config.hidden_size, config.rms_norm_eps, config.family.norm
        super().__init__(weights, size, experts)
        self.mlp = mlp
        self.before_mlp, self.after_mlp, self.before_experts, self.after_experts = (
            Norm(weights.at(name), size, epsilon, form)
            for name in (norms.before_mlp, norms.after_mlp, norms.before_experts, norms.after_experts)
        )
        place, name = norms.before_router
        self.before_router = Norm(weights.at(place), size, epsilon, form, scale=size**-0.5, name=name)

    def __call__(self, stream: Any, adapted: Any | None = None) -> Any:
        update = self.after_mlp(self.mlp(self.before_mlp(stream), adapted))  # [T, hidden]
        routes = self.router(self.before_router(stream))
        total = self.ops.experts(self.before_experts(stream), routes, self.experts)  # [T, hidden], of this rank's share
        return self.ops.add(update, self.after_experts(self.ops.all_reduce(total)))  # [T, hidden]
