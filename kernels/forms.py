"""The number formats in which a model's matrices are stored for products."""

from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["fp32", "fp16", "bf16", "int8", "int4"]
_KINDS: dict[torch.dtype, Kind] = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
DTYPES: dict[str, torch.dtype] = {kind: dtype for dtype, kind in _KINDS.items()}


@dataclass(frozen=True)
class WeightForm:
    """How matrices are stored for products."""

    kind: Kind
    group_size: int = 0  # of int4: neighbours along the input that share a scale
    quantizes_rows: bool = False  # of int8 on a GPU: what meets the matrix becomes 8 bits too, as it does on any CPU

    @classmethod
    def of(cls, dtype: torch.dtype) -> "WeightForm":
        return cls(_KINDS[dtype])
