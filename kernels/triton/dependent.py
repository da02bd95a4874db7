"""Launches that begin before the one before them has ended, from Hopper on.

Such a kernel asks for its first weights, which nobody writes, then waits for what is before it; what comes after it may
begin meanwhile, and waits in its turn. Until it has waited it neither reads nor writes what others do.
Knows nothing of what the kernels compute.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .tuning import architecture

_LINE = tl.constexpr(128)  # bytes that come from memory at once
_AHEAD = tl.constexpr(4)  # such lines of each line of a weight


def is_dependent() -> bool:
    """Whether launches here begin early."""
    return architecture() >= 90


@triton.jit
def begin_early(first_weights):
    """`first_weights` point to the beginnings of what this program will read of a weight, [lines] long ones."""
    gdc_launch_dependents()
    bytes_of = first_weights.to(tl.int64)[:, None] + tl.arange(0, _AHEAD)[None, :] * _LINE
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [bytes_of], dtype=tl.int32, is_pure=False, pack=1
    )
    gdc_wait()
