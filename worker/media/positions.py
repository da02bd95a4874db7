"""Where patches lie, as encoders learn it: angles of height and width, and a learned table resampled to a grid."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import TokenRotation
from ..description.families.vision import Places
from ..description.vision_config import VisionConfig
from .arrangement import Arrangement


def rotation_of(arrangement: Arrangement, config: VisionConfig, device: torch.device) -> TokenRotation | None:
    """cosines and sines [P, 1, padded head_dim]: half of a head's angles is of heights, the other of widths."""
    if not config.family.rotates:
        return None
    half = config.head_dim // 2
    frequencies = 1.0 / (config.rope_theta ** (torch.arange(0, half, 2, dtype=torch.float) / half))
    places = torch.stack((arrangement.heights, arrangement.widths), 1).float()  # [P, 2]
    angles = (places[:, :, None] * frequencies).flatten(1)  # [P, head_dim / 2]
    cos, sin = angles.cos(), angles.sin()
    cos, sin = torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)
    filled = (0, config.padded_head_dim - config.head_dim)
    cos, sin = F.pad(cos, filled, value=1.0), F.pad(sin, filled)
    return TokenRotation(cos[:, None].to(device), sin[:, None].to(device))


def resampled(table: Tensor, side: int, arrangement: Arrangement) -> Tensor:
    """[P, hidden]: of a table [side², hidden] what lies where a patch would, if its frame's corners are the table's."""
    down, across = arrangement.grid
    rows, row_shares = _neighbours(arrangement.heights, down, side)
    columns, column_shares = _neighbours(arrangement.widths, across, side)
    places = (rows[:, :, None] * side + columns[:, None, :]).flatten(1)  # [P, 4]
    shares = (row_shares[:, :, None] * column_shares[:, None, :]).flatten(1)
    places, shares = places.to(table.device), shares.to(table.device)
    found = table[places[:, 0]] * shares[:, :1]
    for corner in range(1, 4):
        found += table[places[:, corner]] * shares[:, corner, None]
    return found


def bucketed(table: Tensor, side: int, arrangement: Arrangement) -> Tensor:
    """[P, hidden]: of a table [side², hidden] what covers the beginning of a patch, if a frame were as large."""
    down, across = (_buckets(count, side) for count in arrangement.grid)
    places = down[arrangement.heights] * side + across[arrangement.widths]
    return table[places.to(table.device)]


def _buckets(count: int, side: int) -> Tensor:
    """[count]. In float32 as transformers has them: where rounding puts one beside its place, it was trained so."""
    bounds = torch.arange(1 / side, 1.0, 1 / side)
    begins = torch.arange(count, dtype=torch.float32) * (1.0 / torch.tensor(count))
    return torch.bucketize(begins.clamp(max=1.0 - 1e-6), bounds, right=True)


def fixed(table: Tensor, side: int, arrangement: Arrangement) -> Tensor:
    """[P, hidden] of frames that have a patch for each place of the table."""
    return table[(arrangement.heights * side + arrangement.widths).to(table.device)]


PLACES: dict[Places, Callable[[Tensor, int, Arrangement], Tensor]] = {
    "resampled": resampled,
    "bucketed": bucketed,
    "fixed": fixed,
}


def _neighbours(places: Tensor, count: int, side: int) -> tuple[Tensor, Tensor]:
    """Of each place among `count` the two of `side` beside it, [P, 2], and how much of each it takes."""
    exact = places.float() * (side - 1) / max(count - 1, 1)
    first = exact.floor().long()
    share = exact - first
    return torch.stack((first, (first + 1).clamp_(max=side - 1)), 1), torch.stack((1 - share, share), 1)
