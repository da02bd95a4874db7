"""Sample one token per row: the best, or one drawn by the inverse of the cumulative distribution.

A row's token depends on its own logits, parameters and random number alone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ...registry import op
from .order import Scan
from .uniform import uniform

# How a row chooses; the native kernel numbers them likewise.
BEST = 0
OF_TOP_K = 1  # among the first k in order; the other rules then speak of what is left
OF_TOP_P = 2  # among the first in order that hold a share of the whole
OF_ALL = 3  # in the order of token ids


class Columns(NamedTuple):
    """What draws depend on: a value for each row or slot."""

    temperature: Tensor  # float32
    top_p: Tensor
    min_p: Tensor
    top_k: Tensor  # int64
    seed: Tensor
    sample: Tensor


# Tables keep them as two matrices, a line for each of these.
REALS, WHOLES = Columns._fields[:3], Columns._fields[3:]


@dataclass
class Draws:
    """How each row wants to be chosen."""

    kinds: numpy.ndarray  # [rows] int64, on the host
    top_k: numpy.ndarray  # [rows] int64, on the host
    columns: Columns  # [rows] each, on the logits' device as the positions
    positions: Tensor  # [rows] int64: of the token to choose

    def __len__(self) -> int:
        return len(self.kinds)

    def only(self, indices: numpy.ndarray) -> "Draws":
        index = torch.from_numpy(indices).to(self.positions.device)
        columns = Columns(*(column[index] for column in self.columns))
        return Draws(self.kinds[indices], self.top_k[indices], columns, self.positions[index])

    @cached_property
    def of_rows(self) -> Columns:
        """The columns, shaped to act on rows of logits."""
        return Columns(*(column[:, None] for column in self.columns))

    def uniform(self) -> Tensor:
        return uniform(self.columns.seed, self.columns.sample, self.positions)[:, None]


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
    place = (sums <= draws.uniform() * sums[:, -1:]).sum(-1, keepdim=True).clamp_(max=logits.shape[1] - 1)
    return torch.where(kinds == BEST, logits.argmax(-1, keepdim=True), order.gather(1, place))[:, 0]


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
