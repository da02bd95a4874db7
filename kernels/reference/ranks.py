"""What the ranks of a model compute together. A formula sees every rank's part, a version only its own.

Native versions go through memory that the ranks share (`cpu/shared_memory.py`), a GPU's through NCCL.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..registry import op


@op(tolerance=0)
def all_reduce(parts: Sequence[Tensor]) -> Tensor:
    """Σ of the ranks' [rows, width], added in the order of the ranks, so that all of them get the same bits."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


@op(tolerance=0)
def all_gather(parts: Sequence[Tensor]) -> Tensor:
    """[rows, total] from every rank's own columns [rows, share], in the order of the ranks."""
    return torch.cat(tuple(parts), -1)


@op(tolerance=0)
def broadcast(parts: Sequence[Tensor]) -> Tensor:
    """Rank 0's, for all of them."""
    return parts[0]
