"""Dependent launches, from Hopper on: a kernel begins while the one before it ends, and waits for it where it needs it.

Each lets its own follower begin at once. Before `wait_for_previous` nothing is written, and nothing read but weights,
which no kernel writes: so whatever has begun early sees memory as if it had not.
"""

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .switches import DEPENDENT_LAUNCHES
from .tuning import architecture

_LINE, _LINES = tl.constexpr(128), tl.constexpr(8)  # of the cache: bytes of one, and how many of each line of a weight


def dependent() -> dict[str, Any]:
    """Keyword arguments of a launch whose kernel calls `wait_for_previous`."""
    is_on = DEPENDENT_LAUNCHES.is_on and architecture() >= 90
    return {"IS_DEPENDENT": True, "launch_pdl": True} if is_on else {}


@triton.jit
def wait_for_previous(IS_DEPENDENT: tl.constexpr):
    """Wait for the kernel before this one."""
    if IS_DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def fetch(lines, length, part, PARTS: tl.constexpr):
    """Bring the beginning of a part of each line, of `length` numbers, into the second-level cache."""
    STEP: tl.constexpr = _LINE * 8 // lines.dtype.element_ty.primitive_bitwidth
    places = tl.minimum(part * length // PARTS + tl.arange(0, _LINES) * STEP, length - 1)
    pointers = (lines[:, None] + places[None, :]).to(tl.int64)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )
