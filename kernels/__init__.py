"""Operations on rows of numbers: each is a formula (`reference/`), with versions of it in rooms of their own.

Open `operations.py` first: what layers call. `operands.py`, `rows.py`, `paged.py` and `states.py` are what operations
are given; `stored/` has weights as checkpoints hold them. `torch/` has versions in torch's operations, and weights as
these and a GPU's kernels read them; `cpu/` native ones for CPUs, `triton/` those for GPUs.
"""

from .lora import LoraConfig, LoraMapping, LoraWeights
from .operands import DTYPES, HeadLayout, LatentLayout, TokenRotation, WeightFormat
from .operations import LayerKV, Operations
from .rows import HostRows, Scratch
from .states import DeltaHeads, LayerStates, Segments

__all__ = [
    "DTYPES",
    "DeltaHeads",
    "HeadLayout",
    "HostRows",
    "LatentLayout",
    "LayerKV",
    "LayerStates",
    "LoraConfig",
    "LoraMapping",
    "LoraWeights",
    "Operations",
    "Scratch",
    "Segments",
    "WeightFormat",
]
