"""Operations on tensors: each one a plain torch reference, with faster versions registered beside it.

`FAST` and `INVARIANT` are two sets of the same operations. In `INVARIANT` the bits of a row depend on that row alone,
never on the company that it is computed in. Knows nothing of models, requests or processes.
"""

from .forms import DTYPES, WeightForm
from .heads import HeadForm
from .lora import Adapted, LoraForm, LoraWeights
from .operations import LayerKV, Operations, TorchOperations
from .opset import FAST, INVARIANT, OpSet
from .reference.linear import PackedWeight, multiplies_bfloat16, pack
from .rows import Rows, Scratch

__all__ = [
    "DTYPES",
    "FAST",
    "INVARIANT",
    "Adapted",
    "HeadForm",
    "LayerKV",
    "LoraForm",
    "LoraWeights",
    "OpSet",
    "Operations",
    "PackedWeight",
    "Rows",
    "Scratch",
    "TorchOperations",
    "WeightForm",
    "multiplies_bfloat16",
    "pack",
]
