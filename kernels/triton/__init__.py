"""The operations on a GPU, in Triton: each file holds one kernel (or two that belong together), its launch, its tuning.

  attention/   keys and values stored, and attended to
  launch/      how kernels are tuned, switched, compiled and interpreted
  products/    rows times weights, in every number format
  sampling/    from logits to tokens

Here are the kernels between these, what all of them share, and the two faces that layers call: `operations.py`, and
`fused_operations.py` where rows may be few.
Kernels are versions of the registry's operations, so each has a torch reference that defines the right result.
Under `TRITON_INTERPRET=1` the same files compute on a machine without a GPU, in numpy, slowly: that is how they are
tested. Importing this file needs no triton; importing one of the others does.
"""

import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages
from subprocess import SubprocessError
from types import ModuleType


def is_interpreted() -> bool:
    """Whether kernels are to run in Triton's interpreter, on tensors of the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def modules() -> Iterator[ModuleType]:
    """Every file here and below, imported, so that all operations have their versions."""
    for found in walk_packages(__path__, f"{__name__}."):
        yield import_module(found.name)


def lack() -> str:
    """Why these kernels cannot run on a GPU here; "" if they can."""
    if find_spec("triton") is None:
        return "there is no triton here; pip install 'penstock[gpu]' brings it."
    import torch  # only where these kernels are asked for

    if is_interpreted():
        return ""
    return _lack_of_a_launcher() if torch.cuda.is_available() else "torch finds no CUDA device here."


def _lack_of_a_launcher() -> str:
    """Triton compiles its launcher in C when it is first used, unless its cache has it."""
    from triton.runtime import driver

    try:
        driver.active.get_current_target()
    except (AssertionError, OSError, RuntimeError, SubprocessError) as error:
        reason = str(error).splitlines()[0]
        return f"Triton needs a C compiler (gcc, or one named in CC) and Python's headers for its launcher: {reason}"
    return ""
