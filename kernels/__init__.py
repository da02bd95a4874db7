"""Operations on tensors: each one a formula (`reference/`), with versions beside it in rooms of their own.

`torch/` has those in torch's operations, `cpu/` the native ones for processors, `triton/` those for GPUs.
"""

from .forms import DTYPES, WeightForm
from .heads import HeadForm
from .lora import Adapted, LoraForm, LoraWeights
from .operations import LayerKV, Operations
from .packed_weight import PackedWeight, multiplies_bfloat16, pack
from .rows import Rows, Scratch
from .torch.operations import TorchOperations

__all__ = [
    "DTYPES",
    "Adapted",
    "HeadForm",
    "LayerKV",
    "LoraForm",
    "LoraWeights",
    "Operations",
    "PackedWeight",
    "Rows",
    "Scratch",
    "TorchOperations",
    "WeightForm",
    "multiplies_bfloat16",
    "pack",
]
