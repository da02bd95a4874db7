"""Choose one token per row: the best, or one drawn by the inverse of the cumulative distribution.

A row's choice depends on its own logits, parameters and random number alone. Sums over a row are made in one order,
whatever rows stand beside it: one after another over ordered candidates, or over blocks of the vocabulary whose own
sums are of a fixed width. Knows nothing of penalties and masks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..registry import op
from .order import BLOCK, Scan, in_chunks, most_likely
from .uniform import uniform

# How a row chooses; the native kernel numbers them likewise.
BEST = 0
OF_TOP_K = 1  # among the first k in order; top_p and min_p then speak of what is left
OF_TOP_P = 2  # among the first in order that hold a share of the whole
OF_ALL = 3  # in the order of token ids; min_p may apply

# top_p without top_k: this many of the most likely tokens nearly always hold the share that it asks for.
_FIRST_TRY = 1024


@dataclass
class Draws:
    """How each row wants to be chosen, in columns."""

    kinds: numpy.ndarray  # [rows] int64, on the host
    top_k: numpy.ndarray  # [rows] int64, on the host
    reals: Tensor  # [3, rows] float32, on the logits' device as all below: temperature, top_p, min_p
    wholes: Tensor  # [3, rows] int64: top_k, seed, sample
    positions: Tensor  # [rows] int64: of the token to choose

    def __len__(self) -> int:
        return len(self.kinds)

    def only(self, indices: numpy.ndarray) -> "Draws":
        index = torch.from_numpy(indices).to(self.positions.device)
        columns = self.reals[:, index], self.wholes[:, index], self.positions[index]
        return Draws(self.kinds[indices], self.top_k[indices], *columns)

    # Shaped to act on rows of logits.
    @property
    def temperature(self) -> Tensor:
        return self.reals[0][:, None]

    @property
    def top_p(self) -> Tensor:
        return self.reals[1][:, None]

    @property
    def min_p(self) -> Tensor:
        return self.reals[2][:, None]

    def uniform(self) -> Tensor:
        return uniform(self.wholes[1], self.wholes[2], self.positions)[:, None]


Choice = Callable[[Tensor, Tensor, Draws], Tensor]


@op()
def choose(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    """One token id per row, int64; a row with nothing to choose from gets any. The logits may be overwritten."""
    chosen = scanned.best.clone()
    for kind, choice in _CHOICES.items():
        indices = numpy.flatnonzero(draws.kinds == kind)
        if len(indices) == len(draws):
            return choice(logits, scanned.largest[:, None], draws)
        if len(indices):
            index = torch.from_numpy(indices).to(logits.device)
            chosen[index] = choice(logits[index], scanned.largest[index][:, None], draws.only(indices))
    return chosen


def _draw_of_top_k(logits: Tensor, largest: Tensor, draws: Draws) -> Tensor:
    widest = min(int(draws.top_k.max()), logits.shape[1])
    values, ids = most_likely.in_torch(logits, widest)
    weights = _weights(values, largest, draws)
    weights *= torch.arange(widest, device=values.device) < draws.wholes[0][:, None]
    total = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
    return _draw_of_ordered(weights, ids, total, draws)


def _draw_of_top_p(logits: Tensor, largest: Tensor, draws: Draws) -> Tensor:
    total = _block_sums(_weights(logits, largest, draws))[:, -1:]
    vocabulary = logits.shape[1]
    # A GPU sorts it all sooner than the host could learn whether the first try held enough.
    first_try = vocabulary if logits.is_cuda else min(_FIRST_TRY, vocabulary)
    values, ids = most_likely.in_torch(logits, first_try)
    weights = _weights(values, largest, draws)
    drawn = _draw_of_ordered(weights, ids, total, draws)
    if first_try < vocabulary:
        tried = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
        short = (tried < draws.top_p * total)[:, 0].nonzero()[:, 0]
        if len(short):
            rest = draws.only(short.numpy())
            values, ids = most_likely.in_torch(logits[short], vocabulary)
            drawn[short] = _draw_of_ordered(_weights(values, largest[short], rest), ids, total[short], rest)
    return drawn


def _draw_of_ordered(weights: Tensor, ids: Tensor, total: Tensor, draws: Draws) -> Tensor:
    """Draw from candidates in order, the most likely first with weight 1; both rules keep a beginning of the list."""
    sums = weights.cumsum(-1, dtype=torch.float64)
    # A token is kept while the share of those before it falls short of top_p.
    kept = (sums - weights < draws.top_p * total) | (draws.top_p >= 1)
    kept &= weights >= draws.min_p
    target = draws.uniform() * (sums * kept).amax(-1, keepdim=True)
    place = ((sums <= target) & kept).sum(-1, keepdim=True).clamp_(max=ids.shape[1] - 1)
    return ids.gather(1, place)[:, 0]


def _draw_of_all(logits: Tensor, largest: Tensor, draws: Draws) -> Tensor:
    """Draw in the order of token ids, in two strides: the block, then the token in it."""
    weights = _weights(logits, largest, draws, out=logits)
    weights *= weights >= draws.min_p
    sums = _block_sums(weights)
    target = draws.uniform() * sums[:, -1:]
    block = (sums <= target).sum(-1, keepdim=True).clamp_(max=sums.shape[1] - 1)
    before = pad(sums, (1, 0)).gather(1, block)
    inside = in_chunks(weights, BLOCK, 0.0).gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0]
    place = (inside.cumsum(-1, dtype=torch.float64) <= target - before).sum(-1, keepdim=True)
    # The block's own sum was rounded otherwise: where the target lies beyond its last token, that one is meant.
    last = ((inside > 0) * torch.arange(BLOCK, device=inside.device)).amax(-1, keepdim=True)
    return (block * BLOCK + torch.minimum(place, last))[:, 0]


def _weights(logits: Tensor, largest: Tensor, draws: Draws, out: Tensor | None = None) -> Tensor:
    """exp((logit - largest) / temperature): the largest weighs 1, so that no temperature overflows."""
    return torch.sub(logits, largest, out=out).div_(draws.temperature).exp_()


def _block_sums(weights: Tensor) -> Tensor:
    """Running sums at the ends of the blocks."""
    return in_chunks(weights, BLOCK, 0.0).sum(-1).cumsum(-1, dtype=torch.float64)


_CHOICES: dict[int, Choice] = {OF_TOP_K: _draw_of_top_k, OF_TOP_P: _draw_of_top_p, OF_ALL: _draw_of_all}
