"""Choose one token per row: the best, or one drawn by the inverse of the cumulative distribution.

A row's choice depends on its own logits, parameters and random number alone. Sums over a row are made in one order,
whatever rows stand beside it: one after another over ordered candidates, or over chunks of the vocabulary whose own
sums are of a fixed width. Knows nothing of penalties and masks.
"""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..device import on_device
from ..random import uniform
from .order import best, in_chunks, most_likely
from .parameters import RANDOM
from .rows import SamplingRows

# top_p without top_k: this many of the most likely tokens nearly always hold the share that it asks for.
_FIRST_TRY = 1024
_CHUNK = 128  # tokens whose weights are summed before the sums are; divides most vocabularies

Choice = Callable[[Tensor, SamplingRows], Tensor]


def choose(logits: Tensor, rows: SamplingRows) -> Tensor:
    """One token id per row, int64; the logits may be overwritten."""
    chosen = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
    for choice, indices in _by_kind(rows, logits.shape[1]):
        if len(indices) == len(rows):
            return choice(logits, rows)
        if len(indices):
            index = on_device(indices, logits.device)
            chosen[index] = choice(logits[index], rows.only(indices))
    return chosen


def _by_kind(rows: SamplingRows, vocabulary: int) -> list[tuple[Choice, numpy.ndarray]]:
    """Rows by the way in which they choose: a matter of their own parameters only."""
    top_k = rows.parameters.whole("top_k", rows.slots)
    is_random = (rows.parameters.wants[rows.slots] & RANDOM) != 0
    has_top_k = is_random & (top_k > 0) & (top_k < vocabulary)
    has_top_p_only = is_random & ~has_top_k & (rows.parameters.real("top_p", rows.slots) < 1)
    kinds = (
        (_best, ~is_random),
        (_draw_of_top_k, has_top_k),
        (_draw_of_top_p, has_top_p_only),
        (_draw_of_all, is_random & ~has_top_k & ~has_top_p_only),
    )
    return [(choice, numpy.flatnonzero(of_kind)) for choice, of_kind in kinds]


def _best(logits: Tensor, rows: SamplingRows) -> Tensor:
    return best(logits)


def _draw_of_top_k(logits: Tensor, rows: SamplingRows) -> Tensor:
    """top_k first; top_p then speaks of what it left, as one whole."""
    widest = int(rows.parameters.whole("top_k", rows.slots).max())
    values, ids = most_likely(logits, widest)
    weights = _weights(values, rows) * (torch.arange(widest, device=values.device) < rows.whole("top_k"))
    total = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
    return _draw_of_ordered(weights, ids, total, rows)


def _draw_of_top_p(logits: Tensor, rows: SamplingRows) -> Tensor:
    total = _chunk_sums(_weights(logits, rows))[:, -1:]
    vocabulary = logits.shape[1]
    # A GPU sorts it all sooner than the host could learn whether the first try held enough.
    first_try = vocabulary if logits.is_cuda else min(_FIRST_TRY, vocabulary)
    values, ids = most_likely(logits, first_try)
    weights = _weights(values, rows)
    drawn = _draw_of_ordered(weights, ids, total, rows)
    if first_try < vocabulary:
        tried = weights.cumsum(-1, dtype=torch.float64)[:, -1:]
        short = (tried < rows.real("top_p") * total)[:, 0].nonzero()[:, 0].numpy()
        if len(short):
            rest = rows.only(short)
            values, ids = most_likely(logits[short], vocabulary)
            drawn[short] = _draw_of_ordered(_weights(values, rest), ids, total[short], rest)
    return drawn


def _draw_of_ordered(weights: Tensor, ids: Tensor, total: Tensor, rows: SamplingRows) -> Tensor:
    """Draw from candidates in order, the most likely first with weight 1; both rules keep a beginning of the list."""
    sums = weights.cumsum(-1, dtype=torch.float64)
    top_p = rows.real("top_p")
    # A token is kept while the share of those before it falls short of top_p.
    kept = (sums - weights < top_p * total) | (top_p >= 1)
    kept &= weights >= rows.real("min_p")
    target = _uniform(rows) * (sums * kept).amax(-1, keepdim=True)
    place = ((sums <= target) & kept).sum(-1, keepdim=True).clamp_(max=ids.shape[1] - 1)
    return ids.gather(1, place)[:, 0]


def _draw_of_all(logits: Tensor, rows: SamplingRows) -> Tensor:
    """Draw in the order of token ids, in two strides: the chunk, then the token in it."""
    weights = _weights(logits, rows, out=logits)
    if rows.parameters.real("min_p", rows.slots).any():
        weights *= weights >= rows.real("min_p")
    sums = _chunk_sums(weights)
    target = _uniform(rows) * sums[:, -1:]
    chunk = (sums <= target).sum(-1, keepdim=True).clamp_(max=sums.shape[1] - 1)
    before = pad(sums, (1, 0)).gather(1, chunk)
    inside = in_chunks(weights, _CHUNK, 0.0).gather(1, chunk[:, :, None].expand(-1, -1, _CHUNK))[:, 0]
    place = (inside.cumsum(-1, dtype=torch.float64) <= target - before).sum(-1, keepdim=True)
    # The chunk's own sum was rounded otherwise: where the target lies beyond its last token, that one is meant.
    last = ((inside > 0) * torch.arange(_CHUNK, device=inside.device)).amax(-1, keepdim=True)
    return (chunk * _CHUNK + torch.minimum(place, last))[:, 0]


def _weights(logits: Tensor, rows: SamplingRows, out: Tensor | None = None) -> Tensor:
    """exp(logits / temperature), shifted so that the largest is 1: no temperature overflows."""
    shifted = torch.sub(logits, logits.amax(-1, keepdim=True), out=out)
    return shifted.div_(rows.real("temperature")).exp_()


def _chunk_sums(weights: Tensor) -> Tensor:
    """Running sums at the ends of the chunks."""
    return in_chunks(weights, _CHUNK, 0.0).sum(-1).cumsum(-1, dtype=torch.float64)


def _uniform(rows: SamplingRows) -> Tensor:
    return uniform(rows.whole("seed"), rows.whole("sample"), rows.column(rows.positions))
