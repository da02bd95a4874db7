"""A tile's sums over several parts of the inputs: stored by those who have them, added by the last who comes.

They are added in ascending order, whoever that is. The parts of a tile lie together.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...arrival import counters


def room_for(
    parts: int, numbers: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Memory for so many parts of all tiles' numbers, and counters of them; nothing if there is one part."""
    return (torch.empty(parts * numbers, dtype=dtype, device=device), counters(device)) if parts > 1 else (None, None)


@triton.jit
def store_part(partial, tile, part, sums, PARTS: tl.constexpr):
    """`sums` are this part's [lines, rows]."""
    tl.store(partial + (tile * PARTS + part).to(tl.int64) * sums.numel + _places(sums), sums)


@triton.jit
def added_parts(partial, tile, sums, PARTS: tl.constexpr):
    """All parts; `sums` says only what they look like."""
    added = tl.zeros_like(sums)
    first = partial + tile.to(tl.int64) * (PARTS * sums.numel)
    for part in tl.static_range(PARTS):
        # Not from the nearest cache, which may hold what was there before.
        added += tl.load(first + part * sums.numel + _places(sums), cache_modifier=".cg")
    return added


@triton.jit
def _places(sums):
    return tl.arange(0, sums.shape[0])[:, None] * sums.shape[1] + tl.arange(0, sums.shape[1])[None, :]
