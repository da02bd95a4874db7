"""The operations on a GPU, in Triton: each file holds one kernel (or two that belong together), its launch, its tuning.

Kernels are versions of the registry's operations, so each stands beside a torch reference that says what is right.
Under `TRITON_INTERPRET=1` the same files compute on a machine without a GPU, in numpy, slowly: that is how they are
tested. Importing this file needs no triton; importing one of the others does. Knows nothing of models or requests.
"""

import os
from importlib.util import find_spec

import torch


def is_interpreted() -> bool:
    """Whether kernels are to run in Triton's interpreter, on tensors of the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def lack() -> str:
    """Why these kernels cannot run on a GPU here; "" if they can."""
    if find_spec("triton") is None:
        return "there is no triton here; install it (pip install triton), as torch's CUDA builds do."
    if not is_interpreted() and not torch.cuda.is_available():
        return "torch finds no CUDA device here."
    return ""
