"""Mixtures of experts: the choice of a token's experts, and the weighted sum of what they compute."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..experts import GatedActivation, Routes, Routing
from ..registry import op


@op()
def route(
    logits: Tensor,
    bias: Tensor | None,
    routing: Routing,
    factors: Tensor | None = None,
    token_kinds: Tensor | None = None,
    kind: int = 0,
) -> Routes:
    """Choose each token's `top_k` experts by score + bias, best first; of equal ones the lowest number comes first.

    `logits` are [T, experts]. The bias takes part in the choice only; the factors [experts] only scale the chosen ones'
    weights. Tokens of other kinds, int32 [T], get -1 and 0 as experts and weights.
    """
    logits = logits.float()
    scores = _scores(logits, routing)
    choice = scores if bias is None else scores + bias
    chosen = _best(_of_kept_groups(choice, routing), routing.top_k)  # [T, top_k]
    weights = scores.gather(1, chosen)
    if routing.score == "softmax_of_chosen":
        weights = weights.softmax(1)
    if routing.renormalizes:
        weights = weights / weights.sum(1, keepdim=True).clamp_min(routing.least_sum)
    weights = weights * routing.scale
    weights = weights if factors is None else weights * factors[chosen]
    if token_kinds is not None:
        is_other = (token_kinds != kind)[:, None]
        chosen, weights = chosen.masked_fill(is_other, -1), weights.masked_fill(is_other, 0)
    return Routes(chosen.to(torch.int32), weights)


def _scores(logits: Tensor, routing: Routing) -> Tensor:
    if routing.score == "softmax":
        return logits.softmax(1)
    return _sigmoid(logits) if routing.score == "sigmoid" else logits


def _sigmoid(x: Tensor) -> Tensor:
    """Made of operations whose result doesn't depend on the lane of a vector, unlike torch's own sigmoid."""
    return 1 / (1 + (-x).exp())


def _of_kept_groups(choice: Tensor, routing: Routing) -> Tensor:
    """The choice, with -∞ for all experts of the groups that are left out."""
    if routing.kept_groups >= routing.num_groups:
        return choice
    groups = choice.unflatten(1, (routing.num_groups, -1))  # [T, groups, experts / groups]
    counted = 1 if routing.group_score == "best" else 2
    kept = _best(groups.topk(counted, 2).values.sum(2), routing.kept_groups)  # [T, kept_groups]
    is_kept = torch.zeros(groups.shape[:2], dtype=torch.bool, device=choice.device).scatter_(1, kept, True)
    return groups.masked_fill(~is_kept[..., None], -torch.inf).flatten(1)


def _best(values: Tensor, count: int) -> Tensor:
    """The indices of the largest `count` of each row, of equal ones the lowest first."""
    return values.argsort(dim=1, descending=True, stable=True)[:, :count]


@op()
def activate(gate_up: Tensor, activation: GatedActivation) -> Tensor:
    """The activation of [rows, 2 × width]: the gate's outputs, then the up's."""
    gate, up = gate_up.float().chunk(2, -1)
    gate, up = gate.clamp(max=activation.limit), up.clamp(-activation.limit, activation.limit)
    inner = gate + activation.cubic * gate**3 if activation.cubic else gate
    return (gate * _sigmoid(activation.slope * inner) * (up + activation.shift)).to(gate_up.dtype)


@op(tolerance=1e-4)
def experts(
    x: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor | None,
    down_bias: Tensor | None,
    routes: Routes,
    first: int,
    activation: GatedActivation,
) -> Tensor:
    """[T, hidden]: of each token the sum over its experts, in their order, of weight × down(activation(gate_up(x))).

    The matrices are those of the experts from `first` on, [experts, 2 × width, hidden] and [experts, hidden, width].
    """

    def output(rows: Tensor, number: int) -> Tensor:
        inner = _product(rows, gate_up[number], gate_up_bias, number)
        return _product(activate.reference(inner, activation), down[number], down_bias, number)

    return weighted_sum(x, routes, first, len(gate_up), output)


def weighted_sum(
    x: Tensor, routes: Routes, first: int, num_experts: int, output: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Add up, in order, the weighted outputs of those of each token's experts that are here.

    `output(rows, number)` is what an expert, counted from the first one here, makes of some rows, in float32.
    """
    total = torch.zeros_like(x, dtype=torch.float32)
    for chosen, weights in zip(routes.experts.unbind(1), routes.weights.unbind(1), strict=True):
        for number in range(num_experts):
            own = (chosen == first + number).nonzero()[:, 0]
            total[own] += weights[own, None] * output(x[own], number)
    return total.to(x.dtype)


def _product(x: Tensor, weight: Tensor, biases: Tensor | None, number: int) -> Tensor:
    product = x.float() @ weight.float().T
    return product if biases is None else product + biases[number].float()


@op()
def add_gated(total: Tensor, update: Tensor, gate: Tensor) -> Tensor:
    """Adds update × sigmoid(gate) to the total, the gate a number a row; gives the total."""
    return total.add_(update * _sigmoid(gate.float()).to(update.dtype))
