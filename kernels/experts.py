"""What a mixture of experts is computed from: the rule that chooses a token's experts, what one computes, its weights.

An expert is a gated MLP. A token's `top_k` experts are chosen by a router's scores; their outputs are multiplied by
weights that follow from the scores, and added up in the order in which they were chosen, so that a token's sum doesn't
depend on which others are computed along with it.
"""

import math
from typing import Any, Literal, NamedTuple

from ..records import dataclass
from .arrays import DeviceArray
from .operands import Vector


class UnlikeExperts(ValueError):
    """The experts of one layer are stored in formats that can't be joined into one weight."""


@dataclass(frozen=True)
class Routing:
    """How a token's experts are chosen, and what their outputs are multiplied by."""

    num_experts: int
    top_k: int
    # Of all logits, or (softmax_of_chosen) the choice goes by the logits and only the chosen ones share the softmax.
    score: Literal["softmax", "sigmoid", "softmax_of_chosen"] = "softmax"
    num_groups: int = 1  # neighbours
    kept_groups: int = 1  # groups that may be chosen from
    group_score: Literal["best", "best_two"] = "best"  # of a group: its best choice, or the sum of its best two
    renormalizes: bool = True  # the weights of a token are divided by their sum
    least_sum: float = 0.0  # or by this, where it is more
    scale: float = 1.0  # of the weights, in the end


@dataclass(frozen=True)
class GatedActivation:
    """Computes, with g = min(gate, limit), g × sigmoid(slope × (g + cubic × g³)) × (clamp(up, ±limit) + shift).

    As it comes it is silu(gate) × up; with a slope of 2√(2/π) and a cubic of 0.044715 it is gelu_tanh(gate) × up.
    """

    slope: float = 1.0
    shift: float = 0.0
    limit: float = math.inf
    cubic: float = 0.0


class Routes(NamedTuple):
    """The experts of each token, best first, and what their outputs are multiplied by."""

    experts: DeviceArray  # int32 [T, top_k]
    weights: DeviceArray  # float32 [T, top_k]


class ExpertBlocks(NamedTuple):
    """The pairs of a token and a rank, sorted by expert, in blocks of one expert each.

    A pair's number is token × top_k + rank. How many blocks there are follows from the number of pairs alone, so that
    nobody has to look at the routes; those that are left over are empty.
    """

    experts: DeviceArray  # int32 [blocks]: the expert, counted from the first one here; -1: none
    pairs: DeviceArray  # int32 [blocks, size]: in ascending order; -1: none

    @staticmethod
    def num_blocks(num_pairs: int, num_experts: int, size: int) -> int:
        """As many as are needed whatever the routes are: each expert's last block may hold a single pair."""
        used = min(num_pairs, num_experts)
        return (num_pairs + used * (size - 1)) // size


@dataclass(frozen=True, eq=False)
class ExpertWeights:
    """The experts of this rank, or its share of each."""

    gate_up: Any  # packed, of each expert [2 × width, hidden]: the gate's outputs, then the up's
    down: Any  # packed, of each expert [hidden, width]
    gate_up_bias: Vector | None  # [experts, 2 × width]
    down_bias: Vector | None  # [experts, hidden]
    first: int  # the number of the first expert here; what other ranks have adds nothing
    num_experts: int  # here
    width: int  # of the inner layer, here
    activation: GatedActivation
