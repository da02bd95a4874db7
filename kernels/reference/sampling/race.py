"""Sample one token per row by an exponential race: the token wins that comes first if each comes at a random time.

Where times are exponential, with the tokens' weights as rates, the first one is distributed as the weights are: so
nothing need be summed to draw. A token's time is a hash of (seed, sample, position, token) over its weight, and chunks
of a row can look for their winners side by side. Which tokens may be drawn is as in `choice`, from the same columns;
the tokens drawn are others.

The columns lie on the device and no host reads them, so the same launches serve whatever rows come: a captured step is
replayed with other numbers in the same tensors.
"""

import math

import torch
from torch import Tensor

from ....records import dataclass
from ...registry import op
from ...sampling import BEST, NO_ROW, NOT_FINITE, NOTHING_LEFT, Columns, DeviceDraws
from .adjust import apply_mask
from .choice import kept
from .uniform import exponential


@dataclass(frozen=True, eq=False)
class DeviceMask:
    """Which tokens a grammar allows, in tensors whose sizes stay."""

    lines: Tensor  # int32 [rows]: each row's line of bits, or NO_ROW
    bits: Tensor  # int32 [lines, ceil(vocabulary / 32)], lowest bit first; 1 allows

    @classmethod
    def room(cls, num_rows: int, vocab_size: int, device: torch.device) -> "DeviceMask":
        """Room for the masks of a step's rows; at first no row has one."""
        lines = torch.full((num_rows,), NO_ROW, dtype=torch.int32, device=device)
        return cls(lines, torch.empty(num_rows, -(-vocab_size // 32), dtype=torch.int32, device=device))

    def first(self, num_rows: int) -> "DeviceMask":
        return DeviceMask(self.lines[:num_rows], self.bits[:num_rows])

    def take(self, lines: Tensor, bits: Tensor) -> None:
        """Copy these masks into its first rows, without waiting for the device."""
        for room, taken in ((self.lines, lines), (self.bits, bits)):
            room[: len(taken)].copy_(taken, non_blocking=True)


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
    """The token that wins the draw, for rows that draw."""
    slots = draws.slots.clamp(min=0).long()
    kinds = draws.kinds[slots][:, None]
    columns = Columns(*draws.reals[:, slots, None], *draws.wholes[:, slots, None])
    weights = ((logits - logits.amax(-1, keepdim=True)) / columns.temperature).exp()
    may_come = kept(logits, weights, kinds, columns)
    token_ids = torch.arange(logits.shape[1], device=logits.device)
    speeds = weights / exponential(columns.seed, columns.sample, draws.positions[:, None].long(), token_ids)
    drawn = speeds.masked_fill(~may_come, -1).argmax(-1)
    return torch.where(kinds[:, 0] == BEST, logits.argmax(-1), drawn)
