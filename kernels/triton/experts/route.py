"""The choice of each token's experts: one program a token, which holds all scores and takes out the best one by one.

Experts lie as [group, expert of the group]. Of equal scores the lowest number comes first. Where tokens have kinds,
those of another kind are given no expert.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...experts import Routes, Routing
from ...reference import experts as reference
from ..rows import NONE, block_of, id_of, in_order, value_of, warps_of

_NO_KIND = -1


@triton.jit(do_not_specialize=["kind"])
def _route(
    logits, bias, factors, kinds, experts, weights, kind, least_sum, scale, SCORE: tl.constexpr, GROUPS: tl.constexpr,
    WIDTH: tl.constexpr, KEPT: tl.constexpr, IS_BEST_TWO: tl.constexpr, TOP_K: tl.constexpr, RENORMALIZES: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr, BLOCK_WIDTH: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Where `kind` is below 0, tokens have no kinds and `kinds` isn't read."""
    token, groups, members = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_GROUPS), tl.arange(0, BLOCK_WIDTH)
    numbers = groups[:, None] * WIDTH + members[None, :]
    is_expert = (groups < GROUPS)[:, None] & (members < WIDTH)[None, :]
    scores = tl.load(logits + token * (GROUPS * WIDTH) + numbers, mask=is_expert, other=-float("inf")).to(tl.float32)
    if SCORE == "softmax":
        scores = tl.exp(scores - tl.max(tl.max(scores, 1), 0))
        scores /= tl.sum(tl.sum(scores, 1), 0)
    elif SCORE == "sigmoid":
        scores = 1 / (1 + tl.exp(-scores))
    choice = scores
    if bias is not None:
        choice += tl.load(bias + numbers, mask=is_expert, other=0).to(tl.float32)
    if KEPT < GROUPS:
        keys = tl.where(is_expert, in_order(choice, numbers), NONE)
        is_kept = _are_kept(keys, groups, GROUPS, WIDTH, KEPT, IS_BEST_TWO)
        choice = tl.where((is_kept > 0)[:, None], choice, -float("inf"))
    keys = tl.where(is_expert, in_order(choice, numbers), NONE)
    ranks = tl.arange(0, BLOCK_K)
    chosen, shares = tl.zeros([BLOCK_K], tl.int32), tl.full([BLOCK_K], -float("inf"), tl.float32)
    for rank in range(TOP_K):
        first = tl.max(tl.max(keys, 1), 0)
        is_first = keys == first
        chosen = tl.where(ranks == rank, id_of(first), chosen)
        shares = tl.where(ranks == rank, tl.sum(tl.sum(tl.where(is_first, scores, 0.0), 1), 0), shares)
        keys = tl.where(is_first, NONE, keys)
    if SCORE == "softmax_of_chosen":
        shares = tl.exp(shares - tl.max(shares, 0))
        shares /= tl.sum(shares, 0)
    if RENORMALIZES:
        shares /= tl.maximum(tl.sum(tl.where(ranks < TOP_K, shares, 0.0), 0), least_sum)
    shares *= scale
    if factors is not None:
        shares *= tl.load(factors + chosen, mask=ranks < TOP_K, other=0).to(tl.float32)
    is_other = tl.load(kinds + token, mask=kind >= 0, other=kind) != kind
    chosen, shares = tl.where(is_other, -1, chosen), tl.where(is_other, 0.0, shares)
    tl.store(experts + token * TOP_K + ranks, chosen, mask=ranks < TOP_K)
    tl.store(weights + token * TOP_K + ranks, shares, mask=ranks < TOP_K)


@triton.jit
def _are_kept(
    keys, groups, GROUPS: tl.constexpr, WIDTH: tl.constexpr, KEPT: tl.constexpr, IS_BEST_TWO: tl.constexpr
):  # fmt: skip
    """1 for each group that may be chosen from, judged by its best expert or by the sum of its best two."""
    first = tl.max(keys, 1)
    values = value_of(first)
    if IS_BEST_TWO and WIDTH > 1:
        values += value_of(tl.max(tl.where(keys == first[:, None], NONE, keys), 1))
    left = tl.where(groups < GROUPS, in_order(values, groups), NONE)
    is_kept = tl.zeros(groups.shape, tl.int32)
    for _ in range(KEPT):
        best = tl.max(left, 0)
        is_kept = tl.where(left == best, 1, is_kept)
        left = tl.where(left == best, NONE, left)
    return is_kept


@reference.route.implement("triton")
def route(
    logits: Tensor,
    bias: Tensor | None,
    routing: Routing,
    factors: Tensor | None = None,
    token_kinds: Tensor | None = None,
    kind: int = 0,
) -> Routes:
    tokens, device = len(logits), logits.device
    routes = Routes(
        torch.empty(tokens, routing.top_k, dtype=torch.int32, device=device),
        torch.empty(tokens, routing.top_k, dtype=torch.float32, device=device),
    )
    if tokens:
        kinds, own = (routes.experts, _NO_KIND) if token_kinds is None else (token_kinds, kind)
        numbers = (own, routing.least_sum, routing.scale)
        _route[tokens,](logits.contiguous(), bias, factors, kinds, *routes, *numbers, **_constants(routing))
    return routes


def _constants(routing: Routing) -> dict[str, Any]:
    groups = routing.num_groups if routing.kept_groups < routing.num_groups else 1
    width = routing.num_experts // groups
    block = (block_of(groups), block_of(width))
    return {
        "SCORE": routing.score, "GROUPS": groups, "WIDTH": width, "KEPT": min(routing.kept_groups, groups),
        "IS_BEST_TWO": routing.group_score == "best_two", "TOP_K": routing.top_k,
        "RENORMALIZES": routing.renormalizes, "BLOCK_GROUPS": block[0], "BLOCK_WIDTH": block[1],
        "BLOCK_K": block_of(routing.top_k), "num_warps": warps_of(block[0] * block[1]),
    }  # fmt: skip
