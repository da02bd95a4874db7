"""A safetensors file that is written piece by piece, so that no tensor need ever be in memory as a whole.

The header comes first in such a file, so all shapes must be known before the first piece.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy

from ...kernels.arrays import Array, DType
from ..weights.files.mapped_safetensors import DTYPES
from .prepared_file import PreparedFile

# The formats that are written.
STORED_AS = {
    DTYPES[name]: name for name in ("F32", "F16", "BF16", "I64", "I32", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U8")
}
_HEADER_ALIGN = 4096


class TensorSpec(NamedTuple):
    """The dtype and shape of a tensor that will be written."""

    dtype: DType
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
                "dtype": STORED_AS[planned.dtype],
                "shape": list(planned.shape),
                "data_offsets": [start, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _HEADER_ALIGN)
        super().__init__(path, len(text).to_bytes(8, "little") + text, end)

    def rows(self, name: str, rows: Array, first: int = 0) -> None:
        """Write rows of a tensor, from its row `first` on."""
        planned = self.tensors[name]
        row_bytes = planned.nbytes // max(1, planned.shape[0]) if planned.shape else 0
        if rows.dtype != planned.dtype or rows.shape[1:] != planned.shape[1:]:
            raise ValueError(f"{name} is planned as {planned}, and {rows.dtype} {rows.shape} comes")
        self.put(rows, self._starts[name] + first * row_bytes)

    def whole(self, name: str, values: list[int]) -> None:
        """Write a small tensor at once."""
        self.rows(name, numpy.array(values, self.tensors[name].dtype))
