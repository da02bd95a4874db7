"""How each row of a step samples its token, in columns that a device holds and no host reads.

So the same launches serve whatever rows come: a captured step is replayed with other numbers in the same tensors.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# What can be wrong with a row; 0 is nothing.
NOT_FINITE = 1  # a logit is NaN or +infinity
NOTHING_LEFT = 2  # every logit is -infinity
NO_ROW = -1  # the slot of a row that is not there, and the line of one without a mask


@dataclass(frozen=True, eq=False)
class DeviceDraws:
    """The columns of `reference.choice.Draws`, of every slot, and which slot a row of logits is of."""

    kinds: Tensor  # int64 [slots]: BEST, OF_TOP_K, OF_TOP_P or OF_ALL
    reals: Tensor  # float32 [3, slots]: temperature, top_p, min_p
    wholes: Tensor  # int64 [3, slots]: top_k, seed, sample
    histories: Tensor  # int32 [slots, longest]: where tokens are written that were chosen
    slots: Tensor  # whole numbers [rows]; NO_ROW: of such a row nothing is read, and nothing is written for it
    positions: Tensor  # whole numbers [rows]: of the token to choose; one behind the longest history is not kept
    are_best: bool = False  # the host knows that every row takes its best token


@dataclass(frozen=True, eq=False)
class DeviceMask:
    """Which tokens a grammar allows, in tensors whose sizes stay."""

    lines: Tensor  # int32 [rows]: each row's line of bits, or NO_ROW
    bits: Tensor  # int32 [lines, ceil(vocabulary / 32)], lowest bit first; 1 allows

    @classmethod
    def room(cls, num_rows: int, vocab_size: int, device: torch.device) -> "DeviceMask":
        """For any step of so many rows; as it is, none of them has a mask."""
        lines = torch.full((num_rows,), NO_ROW, dtype=torch.int32, device=device)
        return cls(lines, torch.empty(num_rows, -(-vocab_size // 32), dtype=torch.int32, device=device))

    def first(self, num_rows: int) -> "DeviceMask":
        return DeviceMask(self.lines[:num_rows], self.bits[:num_rows])

    def take(self, lines: Tensor, bits: Tensor) -> None:
        """From here on its first rows are these; no launch is waited for."""
        for room, taken in ((self.lines, lines), (self.bits, bits)):
            room[: len(taken)].copy_(taken, non_blocking=True)
