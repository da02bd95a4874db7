"""Sample one token per row, and look at as few tokens as the rules allow.

Sums over a row are made in one order, whatever the other rows are: one after another over ordered candidates, or over
blocks of the vocabulary whose own sums are of a fixed width.
"""

from collections.abc import Callable
from functools import partial

import numpy
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..reference.sampling.choice import choose, heavy_enough, uniforms
from ..reference.sampling.order import in_chunks, most_likely
from ..sampling import BLOCK, OF_ALL, OF_TOP_K, OF_TOP_P, Columns, Draws, Scan

# top_p without top_k: this many of the most likely tokens nearly always hold the share that it asks for.
_FIRST_TRY = 1024

Choice = Callable[[Tensor, Tensor, Draws], Tensor]


@choose.implement("torch")
def choose_in_torch(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    return _chosen(logits, scanned, draws, min(_FIRST_TRY, logits.shape[1]))


@choose.implement("cuda")
def choose_on_a_gpu(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    """A GPU sorts it all sooner than the host could learn whether a first try held enough."""
    return _chosen(logits, scanned, draws, logits.shape[1])


def _chosen(logits: Tensor, scanned: Scan, draws: Draws, first_try: int) -> Tensor:
    choices: dict[int, Choice] = {
        OF_TOP_K: _draw_of_top_k,
        OF_TOP_P: partial(_draw_of_top_p, first_try=first_try),
        OF_ALL: _draw_of_all,
    }
    chosen = scanned.best.clone()
    for kind, choice in choices.items():
        indices = numpy.flatnonzero(draws.kinds == kind)
        if len(indices) == len(draws):
            return choice(logits, scanned.largest[:, None], draws)
        if len(indices):
            index = torch.from_numpy(indices).to(logits.device)
            chosen[index] = choice(logits[index], scanned.largest[index][:, None], rows_of(draws, indices))
    return chosen


def rows_of(draws: Draws, indices: numpy.ndarray) -> Draws:
    index = torch.from_numpy(indices).to(draws.positions.device)
    columns = Columns(*(column[index] for column in draws.columns))
    return Draws(draws.kinds[indices], draws.top_k[indices], columns, draws.positions[index])


def _draw_of_top_k(logits: Tensor, largest: Tensor, draws: Draws) -> Tensor:
    widest = min(int(draws.top_k.max()), logits.shape[1])
    values, ids = most_likely(logits, widest)
    weights = _weights(values, largest, draws)
    weights *= torch.arange(widest, device=values.device) < draws.of_rows.top_k
    total = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
    return _draw_of_ordered(weights, ids, total, draws)


def _draw_of_top_p(logits: Tensor, largest: Tensor, draws: Draws, first_try: int) -> Tensor:
    total = _block_sums(_weights(logits, largest, draws))[:, -1:]
    values, ids = most_likely(logits, first_try)
    weights = _weights(values, largest, draws)
    drawn = _draw_of_ordered(weights, ids, total, draws)
    if first_try < logits.shape[1]:
        tried = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
        short = (tried < draws.of_rows.top_p * total)[:, 0].nonzero()[:, 0]
        if len(short):
            rest = rows_of(draws, short.numpy())
            values, ids = most_likely(logits[short], logits.shape[1])
            drawn[short] = _draw_of_ordered(_weights(values, largest[short], rest), ids, total[short], rest)
    return drawn


def _draw_of_ordered(weights: Tensor, ids: Tensor, total: Tensor, draws: Draws) -> Tensor:
    """Draw from candidates in order, the most likely first with weight 1; both rules keep a beginning of the list."""
    sums = weights.cumsum(-1, dtype=torch.float64)
    # A token is kept while the share of those before it falls short of top_p.
    kept = (sums - weights < draws.of_rows.top_p * total) | (draws.of_rows.top_p >= 1)
    kept &= heavy_enough(weights, draws.of_rows)
    target = uniforms(draws) * (sums * kept).amax(-1, keepdim=True)
    column = ((sums <= target) & kept).sum(-1, keepdim=True).clamp_(max=ids.shape[1] - 1)
    return ids.gather(1, column)[:, 0]


def _draw_of_all(logits: Tensor, largest: Tensor, draws: Draws) -> Tensor:
    """Draw in the order of token ids, in two strides: the block, then the token in it."""
    weights = _weights(logits, largest, draws, out=logits)
    weights *= heavy_enough(weights, draws.of_rows)
    sums = _block_sums(weights)
    target = uniforms(draws) * sums[:, -1:]
    block = (sums <= target).sum(-1, keepdim=True).clamp_(max=sums.shape[1] - 1)
    before = pad(sums, (1, 0)).gather(1, block)
    inside = in_chunks(weights, BLOCK, 0.0).gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0]
    column = (inside.cumsum(-1, dtype=torch.float64) <= target - before).sum(-1, keepdim=True)
    # The block's own sum was rounded otherwise: where the target lies beyond its last token, that one is meant.
    last = ((inside > 0) * torch.arange(BLOCK, device=inside.device)).amax(-1, keepdim=True)
    return (block * BLOCK + torch.minimum(column, last))[:, 0]


def _weights(logits: Tensor, largest: Tensor, draws: Draws, out: Tensor | None = None) -> Tensor:
    """exp((logit - largest) / temperature): the largest weighs 1, so that no temperature overflows."""
    return torch.sub(logits, largest, out=out).div_(draws.of_rows.temperature).exp_()


def _block_sums(weights: Tensor) -> Tensor:
    """Running sums at the ends of the blocks."""
    return in_chunks(weights, BLOCK, 0.0).sum(-1).cumsum(-1, dtype=torch.float64)
