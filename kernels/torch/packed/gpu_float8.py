"""Weights in 8-bit floats (e4m3) as a GPU's scaled products read them, and rows that become such floats on their way.

A weight has a float32 scale for each output, or for each block of 128 × 128. With scales by output a row has one scale,
with scales by block one for each 128 of its inputs, found when it is multiplied: its largest number becomes 448.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ....records import dataclass
from ...arrays import FLOAT8_E4M3
from ...operands import Kind
from ...stored.float8 import Float8Part
from ...stored.parts import WeightPart
from ..arrays import tensor_of

BLOCK = 128
_LARGEST = 448.0  # of e4m3
_ALIGNED = 16  # inputs, and outputs, that products take together


@dataclass(frozen=True, eq=False)
class Float8Weight:
    """A packed matrix [out_features, in_features]."""

    values: Tensor  # float8_e4m3fn [out, in]
    scales: Tensor  # float32 [out, 1], or [out / 128, in / 128]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return ("fp8",)

    @property
    def is_blocked(self) -> bool:
        return self.scales.shape[0] != self.values.shape[0]

    @property
    def group(self) -> int:
        """Inputs of a row that share a scale."""
        return BLOCK if self.is_blocked else self.values.shape[1]

    def floats(self) -> Tensor:
        """float32 [out, in]."""
        size = BLOCK if self.is_blocked else 1
        scales = self.scales.repeat_interleave(size, 0).repeat_interleave(self.group, 1)
        return self.values.float() * scales


def pack_float8(parts: Sequence[WeightPart | Tensor], device: torch.device) -> Float8Weight | None:
    """The rows of all parts, one below the other, with the numbers of the checkpoint; None if no product takes them."""
    stored = [part for part in parts if isinstance(part, Float8Part) and part.values.dtype == FLOAT8_E4M3]
    outputs, inputs = sum(part.shape[0] for part in stored), stored[0].shape[1] if stored else 0
    if not stored or len(stored) < len(parts) or outputs % _ALIGNED or inputs % _ALIGNED:
        return None
    if all(part.scales.shape[1] == 1 and part.block[1] >= inputs for part in stored):
        scales = [_scales_of_rows(part) for part in stored]
    elif all(part.block == (BLOCK, BLOCK) and part.offset == (0, 0) and not part.shape[0] % BLOCK for part in stored):
        if inputs % BLOCK:
            return None
        scales = [tensor_of(part.scales) for part in stored]
    else:
        return None
    values = torch.cat([tensor_of(part.values, device).view(torch.uint8) for part in stored])
    return Float8Weight(values.view(torch.float8_e4m3fn), torch.cat(scales).to(device))


def _scales_of_rows(part: Float8Part) -> Tensor:
    rows = torch.arange(part.offset[0], part.offset[0] + part.shape[0]) // part.block[0]
    return tensor_of(part.scales)[rows]


def float8_rows(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """x [rows, inputs] as e4m3, and what it is to be multiplied with, float32 [rows, inputs / group]."""
    grouped = x.float().unflatten(1, (-1, group))
    scales = (grouped.abs().amax(2) / _LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    values = (grouped / scales[:, :, None]).clamp(-_LARGEST, _LARGEST)  # nothing rounds beyond it
    return values.flatten(1).to(torch.float8_e4m3fn), scales
