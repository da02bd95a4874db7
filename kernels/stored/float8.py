"""Rows of a weight matrix that a checkpoint stores as 8-bit floats, with scales for blocks of it.

No kernel multiplies 8-bit floats: they become int8, int4 or wider floats when they are packed, each from the float32
product of value and scale. Until then the values may be a view of the file, and nothing is widened as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_ROWS_AT_ONCE = 1024  # that are widened together, where torch does it


@dataclass(frozen=True, eq=False)
class Float8Part:
    """weight[n, k] = values[n, k] × scales[(first_row + n) // block_rows, (first_column + k) // block_columns]"""

    values: Tensor  # [out, in] of one of FLOAT8
    scales: Tensor  # float32 [blocks of rows, blocks of columns]
    block: tuple[int, int]  # rows, columns
    offset: tuple[int, int] = (0, 0)  # where in its block the first value lies: row, column

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def rows(self, first: int, end: int) -> "Float8Part":
        """Some of the outputs."""
        return replace(self, values=self.values[first:end], offset=(self.offset[0] + first, self.offset[1]))

    def transposed(self) -> "Float8Part":
        """[in, out]."""
        return Float8Part(self.values.T.contiguous(), self.scales.T.contiguous(), self.block[::-1], self.offset[::-1])

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scales.nbytes

    def to(self, device: torch.device, dtype: torch.dtype, copy: bool = True) -> Tensor:
        """As wider floats, on a device, like the tensor method of this name; always a copy."""
        found = torch.empty(self.shape, dtype=dtype, device=device)
        first = 0
        for rows in self.split(_ROWS_AT_ONCE):
            found[first : first + len(rows)] = rows.to(device)
            first += len(rows)
        return found

    def split(self, num_rows: int) -> Iterator[Tensor]:
        """float32 [num_rows, in] after another, like the tensor method of this name."""
        for first in range(0, self.shape[0], num_rows):
            yield self._widened(first, min(first + num_rows, self.shape[0]))

    def dequantized(self) -> Tensor:
        """[out, in] in float32."""
        return self._widened(0, self.shape[0])

    def _widened(self, first: int, last: int) -> Tensor:
        (block_rows, block_columns), (first_row, first_column) = self.block, self.offset
        rows = torch.arange(first_row + first, first_row + last) // block_rows
        columns = torch.arange(first_column, first_column + self.shape[1]) // block_columns
        scales = self.scales[rows]
        scales = scales if self.scales.shape[1] == 1 else scales[:, columns]
        return self.values[first:last].float().mul_(scales)


@cache
def code_values(dtype: torch.dtype) -> Tensor:
    """float32 [256]: what each code of these 8-bit floats means."""
    return torch.arange(256, dtype=torch.uint8).view(dtype).float()
