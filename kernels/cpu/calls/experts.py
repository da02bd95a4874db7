"""How a mixture of experts is told to the kernels of the CPU, and the memory that it takes there.

Memory for what lies between an expert's two products is that of some tokens; a kernel takes so many at a time as fit.
"""

from typing import NamedTuple

from ...experts import ExpertWeights, GatedActivation, Routing
from ..program import Buffer
from ..structs import SCORE, Gating
from ..weights.packed import PANEL, padded

_COUNTED = {"best": 1, "best_two": 2}  # of a group
_MOST_TOKENS = 1024  # at a time: each expert then has rows enough to be busy with, whatever is read for them
_LEAST_BYTES = 8 << 20  # of memory between the products, so that one token's outputs are computed in one go
_ROW_APART = 64  # bytes, for rows that would else lie pages apart


class NativeRoutes(NamedTuple):
    """The experts of each token, and what their outputs are multiplied by."""

    experts: Buffer  # int32 instead of float32
    weights: Buffer


def routing_fields(routing: Routing) -> dict[str, float]:
    """The rule, as `Route` has it."""
    return {
        "num_experts": routing.num_experts,
        "top_k": routing.top_k,
        "score": SCORE[routing.score],
        "num_groups": routing.num_groups,
        "kept_groups": routing.kept_groups,
        "counted": _COUNTED[routing.group_score],
        "renormalizes": int(routing.renormalizes),
        "least_sum": routing.least_sum,
        "scale": routing.scale,
    }


def gating_of(activation: GatedActivation) -> Gating:
    return Gating(activation.slope, activation.shift, activation.limit, activation.cubic)


def memory_bytes(weights: ExpertWeights, hidden: int, top_k: int, capacity: int) -> int:
    """The memory between the products, for all tokens of a step or for as many as are computed at a time."""
    return pair_memory_bytes(weights.width, hidden, top_k, capacity)


def pair_memory_bytes(width: int, hidden: int, top_k: int, capacity: int) -> int:
    """The same, of experts whose inner layer is so wide."""
    row_bytes = 4 * padded(max(hidden, width)) + _ROW_APART
    pair_bytes = row_bytes + 4 * max(width, PANEL) + _ROW_APART
    return max(_LEAST_BYTES, min(capacity, _MOST_TOKENS) * top_k * pair_bytes + _ROW_APART)
