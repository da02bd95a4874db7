"""A safetensors file that is written piece by piece, so that no tensor need ever be in memory as a whole.

The header comes first in such a file, so all shapes must be known before the first piece.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .prepared_file import PreparedFile

_STORED_AS = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.uint8: "U8",
}
DTYPES = {name: dtype for dtype, name in _STORED_AS.items()}
_HEADER_ALIGN = 4096


class TensorSpec(NamedTuple):
    """The dtype and shape of a tensor that will be written."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class SafetensorsFile(PreparedFile):
    """`rows` may be given in any order."""

    def __init__(self, path: Path, tensors: dict[str, TensorSpec]) -> None:
        self.tensors = tensors
        self._starts: dict[str, int] = {}
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, planned in tensors.items():
            start, end = end, end + planned.nbytes
            self._starts[name] = start
            header[name] = {
                "dtype": _STORED_AS[planned.dtype],
                "shape": list(planned.shape),
                "data_offsets": [start, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _HEADER_ALIGN)
        super().__init__(path, len(text).to_bytes(8, "little") + text, end)

    def rows(self, name: str, rows: Tensor, first: int = 0) -> None:
        """Write rows of a tensor, from its row `first` on."""
        planned = self.tensors[name]
        row_bytes = planned.nbytes // max(1, planned.shape[0]) if planned.shape else 0
        if rows.dtype != planned.dtype or rows.shape[1:] != planned.shape[1:]:
            raise ValueError(f"{name} is planned as {planned}, and {rows.dtype} {tuple(rows.shape)} comes")
        self.put(rows.contiguous().flatten().view(torch.uint8), self._starts[name] + first * row_bytes)

    def whole(self, name: str, values: list[int]) -> None:
        """Write a small tensor at once."""
        self.rows(name, torch.tensor(values, dtype=self.tensors[name].dtype))
