"""The arguments of a mixture of experts on the CPU, as the kernels read them.

Field for field the structures of source/route.cpp and source/experts.hpp. Memory for what lies between an expert's two
products is that of some tokens; a kernel takes so many at a time as fit.
"""

from ctypes import Structure, c_float, c_int64, c_void_p
from typing import NamedTuple

from torch import Tensor

from ..experts import ExpertWeights, GatedActivation, Routing
from .layer import Quantized
from .program import Buffer
from .weights.packed import PANEL, Weight, padded

_SCORES = {"softmax": 0, "sigmoid": 1, "softmax_of_chosen": 2}
_COUNTED = {"best": 1, "best_two": 2}  # of a group
_MOST_TOKENS = 1024  # at a time: each expert then has rows enough to be busy with, whatever is read for them
_LEAST_BYTES = 8 << 20  # of memory between the products, so that one token's outputs are computed in one go
_ROW_APART = 64  # bytes, for rows that would else lie pages apart


class NativeRoutes(NamedTuple):
    """The experts of each token, and what their outputs are multiplied by."""

    experts: Buffer  # int32 in place of float32
    weights: Buffer


class Route(Structure):
    """Arguments of penstock_route."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("logits", c_void_p),  # [rows, num_experts]
        ("bias", c_void_p),  # [num_experts], or null
        ("factors", c_void_p),  # [num_experts], or null
        ("kinds", c_void_p),  # where the step points to int32 [rows], or null
        ("own_kind", c_int64),
        ("num_experts", c_int64),
        ("top_k", c_int64),
        ("score", c_int64),
        ("num_groups", c_int64),
        ("kept_groups", c_int64),
        ("counted", c_int64),  # of a group
        ("renormalizes", c_int64),
        ("least_sum", c_float),
        ("scale", c_float),
        ("experts", c_void_p),  # int32 [rows, top_k]
        ("weights", c_void_p),  # [rows, top_k]
    ]


def routing_fields(routing: Routing) -> dict[str, float]:
    """The rule, as `Route` has it."""
    return {
        "num_experts": routing.num_experts,
        "top_k": routing.top_k,
        "score": _SCORES[routing.score],
        "num_groups": routing.num_groups,
        "kept_groups": routing.kept_groups,
        "counted": _COUNTED[routing.group_score],
        "renormalizes": int(routing.renormalizes),
        "least_sum": routing.least_sum,
        "scale": routing.scale,
    }


class Gating(Structure):
    """The numbers of `GatedActivation`."""

    _fields_ = [("slope", c_float), ("shift", c_float), ("limit", c_float), ("cubic", c_float)]

    @classmethod
    def of(cls, activation: GatedActivation) -> "Gating":
        return cls(activation.slope, activation.shift, activation.limit, activation.cubic)


class Experts(Structure):
    """Arguments of penstock_experts_<kind>."""

    _fields_ = [
        ("num_rows", c_void_p),  # int32: tokens
        ("input", c_void_p),  # float32 [tokens, hidden]: read by float weights only
        ("quantized_input", Quantized),  # read by integer weights only
        ("experts", c_void_p),  # int32 [tokens, top_k]
        ("weights", c_void_p),  # float32 [tokens, top_k]
        ("top_k", c_int64),
        ("first", c_int64),
        ("num_experts", c_int64),
        ("hidden", c_int64),
        ("width", c_int64),
        ("gate_up", Weight),  # of all experts
        ("down", Weight),
        ("gate_up_bias", c_void_p),  # [num_experts, 2 × width], or null
        ("down_bias", c_void_p),  # [num_experts, hidden], or null
        ("gating", Gating),
        ("memory", c_void_p),
        ("memory_bytes", c_int64),
        ("output", c_void_p),  # float32 [tokens, hidden]
    ]


def biases(weights: ExpertWeights) -> tuple[Tensor | None, Tensor | None]:
    """Those of both products, as the kernels read them."""
    gate_up, down = (
        None if each is None else each.float().contiguous() for each in (weights.gate_up_bias, weights.down_bias)
    )
    return gate_up, down


def memory_bytes(weights: ExpertWeights, hidden: int, top_k: int, capacity: int) -> int:
    """The memory between the products, for all tokens of a step or for as many as are computed at a time."""
    return pair_memory_bytes(weights.width, hidden, top_k, capacity)


def pair_memory_bytes(width: int, hidden: int, top_k: int, capacity: int) -> int:
    """The same, of experts whose inner layer is so wide."""
    row_bytes = 4 * padded(max(hidden, width)) + _ROW_APART
    pair_bytes = row_bytes + 4 * max(width, PANEL) + _ROW_APART
    return max(_LEAST_BYTES, min(capacity, _MOST_TOKENS) * top_k * pair_bytes + _ROW_APART)
