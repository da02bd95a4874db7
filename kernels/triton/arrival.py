"""Finds the last of several programs, which adds up what all of them stored, so that no second launch is needed.

Every program stores its part, then asks `is_last`; the one that gets True sees all the parts, and adds them in their
own order, not in that of arrival. Counters are zero between launches: the last program resets its own. Kernels that
share them run one after another.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST = 1 << 17  # counters of a device


@triton.jit
def is_last(counters, number, count):
    """Whether `count` programs have come to this counter, this one included. Parts are to be loaded with ".cg"."""
    tl.debug_barrier()  # all of this program's threads have stored before one of them counts
    before = tl.atomic_add(counters + number, 1, sem="acq_rel", scope="gpu")
    is_it = before == count - 1
    if is_it:
        tl.store(counters + number, 0)
    return is_it


@cache
def counters(device: torch.device) -> Tensor:
    """All of a device's, at one address for good."""
    return torch.zeros(MOST, dtype=torch.int32, device=device)
