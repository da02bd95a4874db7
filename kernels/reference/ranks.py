"""What the ranks of a model compute together. A formula sees every rank's part, a version only its own.

Native versions go through memory that the ranks share (`cpu/shared_memory.py`), a GPU's through that of its peers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..operands import PeerMemory
from ..registry import op
from .pointwise import add_rms_norm


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


@op()
def add_norm_of_ranks(part: Tensor, peers: PeerMemory, stream: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Adds all ranks' parts to the stream, in place; gives its norm. Here of a group of one: kernels see others."""
    if peers.size > 1:
        raise ValueError(f"one process has one rank's part; there are {peers.size} ranks")
    return add_rms_norm.reference(stream, part, weight, epsilon)
