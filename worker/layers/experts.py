"""The MLP of a sparse layer: a router chooses a few of many experts for each token, and some models add one for all.

The ranks share the experts by their width, each having a part of every one, or with `expert_parallel` by whole experts.
Either way a rank computes its part of each token's sum, and the ranks' parts are added up.
"""

from typing import Any

from ...kernels import WeightFormat
from ...kernels.experts import ExpertWeights, GatedActivation, Routing
from ..models.mixtures import ExpertsConfig
from ..weights.checkpoint import Weights
from ..weights.piece import CheckpointPiece, Part
from .linear import Linear
from .mlp import MLP

_EXACT = WeightFormat("fp32")  # of routers: a choice that hangs on a rounded score is another choice


class Router:
    """The experts of each token."""

    def __init__(self, weights: Weights, hidden_size: int, config: ExpertsConfig) -> None:
        self.ops = weights.placement.ops
        self.routing = Routing(
            config.num_experts,
            config.top_k,
            config.score,  # type: ignore[arg-type]
            config.num_groups,
            config.kept_groups,
            config.group_score,  # type: ignore[arg-type]
            config.renormalizes,
            config.least_sum,
            config.scale,
        )
        names = config.names
        self.logits = exact_linear(weights.at(names.router), config.num_experts, hidden_size)
        self.choice_bias = None
        if names.choice_bias and weights.has(names.choice_bias):
            shape = (*[1] * names.choice_bias_rows, config.num_experts)
            self.choice_bias = weights.exact_vector(names.choice_bias, shape)  # [experts]

    def __call__(self, x: Any) -> Any:
        return self.ops.route(self.logits(x), self.choice_bias, self.routing)


class Experts:
    """Σ over a token's experts of weight × down(activation(gate_up(x))), and the shared MLP's share."""

    def __init__(self, weights: Weights, hidden_size: int, config: ExpertsConfig) -> None:
        self.ops = weights.placement.ops
        self.router = Router(weights, hidden_size, config)
        self.experts = _expert_weights(weights.at(config.names.experts), hidden_size, config)
        self.shared = self.shared_gate = None
        if config.shared_width:
            self.shared = MLP(weights.at(config.names.shared), hidden_size, config.shared_width)
            if config.names.shared_gate:
                self.shared_gate = exact_linear(weights.at(config.names.shared_gate), 1, hidden_size)

    def __call__(self, x: Any, adapted: Any | None = None) -> Any:
        routes = self.router(x)
        total = self.ops.experts(x, routes, self.experts)  # [T, hidden], of this rank's share
        if self.shared is not None:
            update = self.shared.of_rank(x, adapted)  # [T, hidden]
            if self.shared_gate is None:
                total = self.ops.add(total, update)
            else:
                total = self.ops.add_gated(total, update, self.shared_gate(x))
        return self.ops.all_reduce(total)  # [T, hidden]


def exact_linear(weights: Weights, out_features: int, in_features: int) -> Linear:
    """A small product in float32, whole on each rank, whatever the format of the others."""
    weight = weights.packed_as(_EXACT, [CheckpointPiece("weight", (out_features, in_features))])
    biases = [weights.vector("bias", (out_features,))] if weights.has("bias") else []
    return Linear(weight, biases, weights)


def _expert_weights(weights: Weights, hidden_size: int, config: ExpertsConfig) -> ExpertWeights:
    placement = weights.placement
    first, last = 0, config.num_experts
    inner = (0, config.width)
    if placement.expert_parallel:
        first, last = placement.ranks.span(config.num_experts)
    else:
        inner = placement.ranks.span(config.width)
    gate, up, down = config.names.gate_up_down
    rows: Part = (0, *inner)
    columns: Part = (1, *inner)
    numbers = range(first, last)
    gate_up_pieces = [
        [CheckpointPiece(f"{number}.{name}.weight", (config.width, hidden_size), rows) for name in (gate, up)]
        for number in numbers
    ]
    down_pieces = [
        [CheckpointPiece(f"{number}.{down}.weight", (hidden_size, config.width), columns)] for number in numbers
    ]
    return ExpertWeights(
        weights.packed_experts(gate_up_pieces),
        weights.packed_experts(down_pieces),
        None,
        None,
        first,
        last - first,
        inner[1] - inner[0],
        GatedActivation(),
    )
