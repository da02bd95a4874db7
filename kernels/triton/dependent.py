"""A launch that begins while the kernel before it still ends (programmatic dependent launch, from Hopper on).

A program that is launched so comes to its multiprocessor early, and waits there for all that earlier kernels write.
Every kernel of a launch with `dependent_options` calls `wait_for_earlier` in every program, before it reads or writes
anything that is not constant since the start: what it left out, the kernel after it would miss as well. Elsewhere the
two functions are nothing. Knows nothing of what the kernels compute.
"""

import triton
import triton.language as tl

from .switches import DEPENDENT_LAUNCHES
from .tuning import architecture

_SINCE = 90  # Hopper
_SECTOR = tl.constexpr(128)  # bytes that come from memory at once
_AHEAD = tl.constexpr(4)  # times as many of each line are asked for


@triton.jit
def wait_for_earlier(IS_DEPENDENT: tl.constexpr):
    """Until the kernels before this one have ended and what they wrote is seen."""
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_wait()


@triton.jit
def let_later_begin(IS_DEPENDENT: tl.constexpr):
    """The next kernel's programs may come as soon as all of this one's have called this; they wait in their turn."""
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def begin_early(weight_lines, first, length, IS_DEPENDENT: tl.constexpr):
    """Both, and between them the beginnings of what nobody writes are asked for.

    Of each of these lines of a weight, `length` numbers long, this program will read from the `first` one on.
    """
    let_later_begin(IS_DEPENDENT)
    if IS_DEPENDENT:
        PER_SECTOR: tl.constexpr = _SECTOR * 8 // weight_lines.dtype.element_ty.primitive_bitwidth
        places = tl.minimum(first + tl.arange(0, _AHEAD) * PER_SECTOR, length - 1)
        addresses = (weight_lines[:, None] + places[None, :]).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [addresses], dtype=tl.int32, is_pure=False, pack=1
        )
    wait_for_earlier(IS_DEPENDENT)


def is_dependent(target: int) -> bool:
    """Whether GPUs of an architecture, as `tuning.architecture` has it, can launch like that."""
    return target >= _SINCE


def dependent_options() -> dict[str, bool]:
    """What the launch of a kernel with the constant IS_DEPENDENT is given beside its arguments."""
    if DEPENDENT_LAUNCHES.is_on and is_dependent(architecture()):
        return {"IS_DEPENDENT": True, "launch_pdl": True}
    return {"IS_DEPENDENT": False}
