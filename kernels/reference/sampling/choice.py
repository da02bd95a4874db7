"""Sample one token per row: the best, or one drawn by the inverse of the cumulative distribution.

A row's token depends on its own logits, parameters and random number alone.
"""

import torch
from torch import Tensor

from ...registry import op
from ...sampling import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, Columns, Draws, Scan
from .uniform import uniform


@op()
def choose(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    """One token id per row, int64; a row with nothing to choose from gets any. The logits may be overwritten.

    With w = exp((x - x_max) / temperature): the first token whose running sum of w, over those that are kept, exceeds
    u × Σ w. The order is that of ids for OF_ALL, else falling x, equal ones by id.
    """
    kinds = torch.from_numpy(draws.kinds).to(logits.device)[:, None]
    weights = ((logits - logits.amax(-1, keepdim=True)) / draws.of_rows.temperature).exp()  # [rows, vocabulary]
    is_kept = kept(logits, weights, kinds, draws.of_rows)
    ids = torch.arange(logits.shape[1], device=logits.device)
    order = torch.where(kinds == OF_ALL, ids, falling(logits))
    sums = (weights * is_kept).gather(1, order).double().cumsum(-1)
    place = (sums <= uniforms(draws) * sums[:, -1:]).sum(-1, keepdim=True).clamp_(max=logits.shape[1] - 1)
    return torch.where(kinds == BEST, logits.argmax(-1, keepdim=True), order.gather(1, place))[:, 0]


def uniforms(draws: Draws) -> Tensor:
    """[rows, 1]: each row's random number."""
    return uniform(draws.columns.seed, draws.columns.sample, draws.positions)[:, None]


def kept(logits: Tensor, weights: Tensor, kinds: Tensor, columns: Columns) -> Tensor:
    """[rows, vocabulary]: which tokens the rules leave, never less than the first in order."""
    order = falling(logits)
    place = torch.arange(logits.shape[1], device=logits.device)
    is_kept = (place < columns.top_k) | (kinds != OF_TOP_K)  # [rows, vocabulary], in the order of falling x
    ordered = (weights.gather(1, order) * is_kept).double()
    sums = ordered.cumsum(-1)
    # A token is kept while the share of those before it falls short of top_p.
    has_share = (kinds == OF_TOP_K) | (kinds == OF_TOP_P)
    is_kept &= (sums - ordered < columns.top_p * sums[:, -1:]) | (columns.top_p >= 1) | ~has_share
    return torch.zeros_like(is_kept).scatter_(1, order, is_kept | (place == 0)) & heavy_enough(weights, columns)


def heavy_enough(weights: Tensor, columns: Columns) -> Tensor:
    """Which tokens the rule leaves that looks at a weight alone."""
    # w >= min_p  <=>  p >= min_p × p_max, because w_max = 1.
    return weights >= columns.min_p


def falling(logits: Tensor) -> Tensor:
    """The ids of each row by falling x, equal ones by id."""
    return torch.sort(logits, dim=-1, descending=True, stable=True).indices
