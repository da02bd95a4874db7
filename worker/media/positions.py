"""The position embeddings of patches: angles for height and width, and a learned table resampled to a grid."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import TokenRotation
from ..description.families.vision import Places
from ..description.vision_config import VisionConfig
from .arrangement import Arrangement


def rotation_of(arrangement: Arrangement, config: VisionConfig, device: torch.device) -> TokenRotation | None:
    """Cosines and sines [P, 1, padded head_dim]: half of a head's angles are for heights, half for widths."""
    if not config.family.rotates:
        return None
    half = config.head_dim // 2
    frequencies = 1.0 / (config.rope_theta ** (torch.arange(0, half, 2, dtype=torch.float) / half))
    coordinates = torch.stack((arrangement.heights, arrangement.widths), 1).float()  # [P, 2]
    angles = (coordinates[:, :, None] * frequencies).flatten(1)  # [P, head_dim / 2]
    cos, sin = angles.cos(), angles.sin()
    cos, sin = torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)
    filled = (0, config.padded_head_dim - config.head_dim)
    cos, sin = F.pad(cos, filled, value=1.0), F.pad(sin, filled)
    return TokenRotation(cos[:, None].to(device), sin[:, None].to(device))


def resampled(table: Tensor, side: int, arrangement: Arrangement) -> Tensor:
    """[P, hidden]: interpolate a table [side², hidden] at the patches, mapping the frame's corners to the table's."""
    down, across = arrangement.grid
    rows, row_shares = _neighbours(arrangement.heights, down, side)
    columns, column_shares = _neighbours(arrangement.widths, across, side)
    indices = (rows[:, :, None] * side + columns[:, None, :]).flatten(1)  # [P, 4]
    shares = (row_shares[:, :, None] * column_shares[:, None, :]).flatten(1)
    indices, shares = indices.to(table.device), shares.to(table.device)
    found = table[indices[:, 0]] * shares[:, :1]
    for corner in range(1, 4):
        found += table[indices[:, corner]] * shares[:, corner, None]
    return found


def bucketed(table: Tensor, side: int, arrangement: Arrangement) -> Tensor:
    """[P, hidden]: entries of a table [side², hidden] that contain the patches' corners, once scaled to it."""
    down, across = (_buckets(count, side) for count in arrangement.grid)
    indices = down[arrangement.heights] * side + across[arrangement.widths]
    return table[indices.to(table.device)]


def _buckets(count: int, side: int) -> Tensor:
    """[count]. Computed in float32 like transformers: models were trained with its rounding errors."""
    bounds = torch.arange(1 / side, 1.0, 1 / side)
    begins = torch.arange(count, dtype=torch.float32) * (1.0 / torch.tensor(count))
    return torch.bucketize(begins.clamp(max=1.0 - 1e-6), bounds, right=True)


def fixed(table: Tensor, side: int, arrangement: Arrangement) -> Tensor:
    """[P, hidden], for frames with one patch per entry of the table."""
    return table[(arrangement.heights * side + arrangement.widths).to(table.device)]


PLACES: dict[Places, Callable[[Tensor, int, Arrangement], Tensor]] = {
    "resampled": resampled,
    "bucketed": bucketed,
    "fixed": fixed,
}


def _neighbours(indices: Tensor, count: int, side: int) -> tuple[Tensor, Tensor]:
    """For each index below `count`, the two nearest of `side`, [P, 2], and their weights."""
    exact = indices.float() * (side - 1) / max(count - 1, 1)
    first = exact.floor().long()
    share = exact - first
    return torch.stack((first, (first + 1).clamp_(max=side - 1)), 1), torch.stack((1 - share, share), 1)
