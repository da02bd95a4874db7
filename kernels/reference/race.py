"""Sample one token per row by an exponential race: the token wins that comes first if each comes at a random time.

Where times are exponential, with the tokens' weights as rates, the first one is distributed as the weights are: so
nothing need be summed to draw. A token's time is a hash of (seed, sample, position, token) over its weight, and chunks
of a row can look for their winners side by side. Which tokens may be drawn is as in `choice`, from the same columns;
the tokens drawn are others.
"""

import math

import torch
from torch import Tensor

from ..registry import op
from ..sampling_columns import NOT_FINITE, NOTHING_LEFT, DeviceDraws, DeviceMask
from .adjust import apply_mask
from .choice import BEST, kept
from .uniform import exponential


@op(tolerance=0)
def choose_on_device(logits: Tensor, draws: DeviceDraws, mask: DeviceMask | None = None) -> Tensor:
    """Token id and fault of each row of float32 logits, int64 [rows, 2]; all that it asks for lies on the device.

    A token is 0 where its row has a fault. Tokens are written into their rows' histories, masks into the logits.
    """
    is_there = draws.slots >= 0
    if mask is not None:
        masked = (is_there & (mask.lines >= 0)).nonzero()[:, 0]
        apply_mask.reference(logits, masked, mask.bits[mask.lines[masked].long()])
    is_broken = (logits.isnan() | (logits == math.inf)).any(-1)
    is_empty = (logits == -math.inf).all(-1)
    token_ids = _winners(logits, draws).masked_fill(is_broken | is_empty, 0)
    chosen = torch.stack((token_ids, NOT_FINITE * is_broken + NOTHING_LEFT * is_empty), 1) * is_there[:, None]
    is_kept = is_there & (draws.positions < draws.histories.shape[1])
    where = draws.slots[is_kept].long(), draws.positions[is_kept].long()
    draws.histories[where] = chosen[is_kept, 0].to(torch.int32)
    return chosen


def _winners(logits: Tensor, draws: DeviceDraws) -> Tensor:
    """Of rows that have one."""
    slots = draws.slots.clamp(min=0).long()
    kinds, wholes = draws.kinds[slots][:, None], draws.wholes[:, slots, None]
    temperature, top_p, min_p = draws.reals[:, slots, None]
    weights = ((logits - logits.amax(-1, keepdim=True)) / temperature).exp()
    may_come = kept(logits, weights, kinds, wholes[0], top_p, min_p)
    token_ids = torch.arange(logits.shape[1], device=logits.device)
    speeds = weights / exponential(wholes[1], wholes[2], draws.positions[:, None].long(), token_ids)
    drawn = speeds.masked_fill(~may_come, -1).argmax(-1)
    return torch.where(kinds[:, 0] == BEST, logits.argmax(-1), drawn)
