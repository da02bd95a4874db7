"""Choose one token per row by a race: the best token, or the one that comes first if each comes at a random time.

Where times are exponential, with the tokens' weights as rates, the first one is distributed as the weights are: so
nothing need be summed to draw. A token's time is a hash of (seed, sample, position, token) over its weight, and chunks
of a row can look for their winners side by side. What may be drawn at all is what `choice` says, from the same columns;
the tokens drawn are others. Knows nothing of penalties and masks.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ..registry import op
from ..sampling_columns import NOT_FINITE, NOTHING_LEFT, Chosen, DeviceDraws
from .choice import BEST, OF_TOP_K, OF_TOP_P
from .uniform import exponential


def _inputs(seed: int) -> Iterator[tuple[Tensor, DeviceDraws]]:
    generator = torch.Generator().manual_seed(seed)
    for rows, width in ((1, 77), (11, 515), (5, 2100)):
        logits = torch.randn(rows, width, generator=generator) * 3
        for row in range(0, rows, 3):  # many of them equal, some masked
            logits[row] = (logits[row] * 2).round() / 2
            logits[row, ::4] = -math.inf
        for row, value in ((4, math.nan), (6, math.inf)):
            if row < rows:
                logits[row, width // 2] = value
        logits[9:10] = -math.inf
        kinds = torch.randint(0, 4, (rows,), generator=generator, dtype=torch.int32)
        top_k = torch.randint(1, 60, (rows,), generator=generator)
        reals = torch.rand(3, rows, generator=generator) * torch.tensor([[2.0], [1.1], [0.1]])
        wholes = torch.stack((top_k, *torch.randint(-(2**62), 2**62, (2, rows), generator=generator)))
        yield logits, DeviceDraws(kinds, reals, wholes, torch.arange(rows))


@op(_inputs, tolerance=0)
def choose_on_device(logits: Tensor, draws: DeviceDraws) -> Chosen:
    """One token for each row of float32 logits; all that it asks for lies on the device."""
    temperature, _, min_p = draws.reals[:, :, None]
    largest = logits.amax(-1, keepdim=True)
    weights = ((logits - largest) / temperature).exp()
    may_come = _within_top(logits, weights, draws) & (weights >= min_p)
    _, seeds, samples = draws.wholes[:, :, None]
    token_ids = torch.arange(logits.shape[1], device=logits.device)
    speeds = weights / exponential(seeds, samples, draws.positions[:, None], token_ids)
    drawn = speeds.masked_fill(~may_come, -1).argmax(-1)
    chosen = torch.where(draws.kinds == BEST, logits.argmax(-1), drawn)
    is_broken = (logits.isnan() | (logits == math.inf)).any(-1)
    is_empty = (logits == -math.inf).all(-1)
    return Chosen(chosen.masked_fill(is_broken | is_empty, 0), NOT_FINITE * is_broken + NOTHING_LEFT * is_empty)


def _within_top(logits: Tensor, weights: Tensor, draws: DeviceDraws) -> Tensor:
    """What top_k and top_p keep: a beginning of the tokens ordered by value, equal ones by id, never less than one."""
    ids = torch.sort(logits, dim=-1, descending=True, stable=True).indices
    place = torch.arange(logits.shape[1], device=logits.device)
    kinds, (top_p, top_k) = draws.kinds[:, None], (draws.reals[1][:, None], draws.wholes[0][:, None])
    is_kept = (place < top_k) | (kinds != OF_TOP_K)
    ordered = (weights.gather(1, ids) * is_kept).double()
    sums = ordered.cumsum(-1)
    # A token is kept while the share of those before it falls short of top_p.
    has_share = (kinds == OF_TOP_K) | (kinds == OF_TOP_P)
    is_kept &= (sums - ordered < top_p * sums[:, -1:]) | (top_p >= 1) | ~has_share
    return torch.zeros_like(is_kept).scatter_(1, ids, is_kept | (place == 0))
