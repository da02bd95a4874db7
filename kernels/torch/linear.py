"""Products of rows with a packed weight matrix: torch's own, and row-invariant ones.

The row-invariant form multiplies tiles of exactly TILE rows, so that one code path with one order over K serves every
row.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..packed_weight import PackedWeight
from ..reference.linear import linear, linear_invariant

TILE = 16


@linear.implement("torch")
def linear_in_torch(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    if x.dtype == weight.dtype:
        return _product(x, weight, bias)
    return _product(x.to(weight.dtype), weight, bias).to(x.dtype)


@linear_invariant.implement("torch")
def linear_by_tile(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """In tiles of TILE rows, the last one filled up with zeros."""
    num_rows = x.shape[0]
    padded = F.pad(x.to(weight.dtype), (0, 0, 0, -num_rows % TILE))
    tiles = [_product(tile, weight, bias) for tile in padded.split(TILE)]
    products = tiles[0] if len(tiles) == 1 else torch.cat(tiles)
    return products[:num_rows].to(x.dtype)


def _product(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    bias = None if bias is None else bias.to(weight.dtype)
    if weight.is_reordered:
        return torch.ops.mkldnn._linear_pointwise(x, weight.values, bias, "none", [], "")
    return F.linear(x, weight.values, bias)
