"""The arguments of a layer's smaller operations on the CPU, as the kernels read them.

Field for field the structures of source/norm.cpp, activation.cpp, rows.cpp and embedding.cpp. Rows are float32. What is
quantized for an integer product is written where `Quantized` says, by whoever writes the row.
"""

from ctypes import Structure, c_float, c_int64, c_void_p
from typing import Self

import torch
from torch import Tensor

from .linear import Quantized
from .weights import NativeWeight, Weight

# As embedding.cpp numbers its readers.
_PLAIN_TABLES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_PACKED_TABLES = {"fp32": 3, "fp16": 4, "bf16": 5, "int8": 6, "int4": 7}


class AddRmsNorm(Structure):
    """stream += update; output = stream / sqrt(mean(stream²) + ε) × weight."""

    _fields_ = [
        ("num_rows", c_void_p),  # int32
        ("stream", c_void_p),  # [rows, width], updated in place
        ("update", c_void_p),  # [rows, width], or null
        ("weight", c_void_p),  # [width]
        ("epsilon", c_float),
        ("width", c_int64),
        ("output", c_void_p),  # [rows, width]; null where only the quantized form is wanted
        ("quantized", Quantized),
    ]


class SiluMultiply(Structure):
    """output = silu(first half of a row) × second half."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("gate_up", c_void_p),  # [rows, 2 × width]
        ("width", c_int64),
        ("output", c_void_p),  # [rows, width]; null where only the quantized form is wanted
        ("quantized", Quantized),
    ]


class Add(Structure):
    """stream += update."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("stream", c_void_p),  # [rows, width], updated in place
        ("update", c_void_p),
        ("width", c_int64),
    ]


class GatherRows(Structure):
    """output[i] = input[indices[i]]."""

    _fields_ = [
        ("num_rows", c_void_p),  # of the output
        ("indices", c_void_p),  # where a pointer to int64 [rows] stands: a field of the step
        ("input", c_void_p),
        ("width", c_int64),
        ("output", c_void_p),
    ]


class Embedding(Structure):
    """output[i] = table[token_ids[i] - first]; zeros where the table doesn't hold the id."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("token_ids", c_void_p),  # where a pointer to int64 [rows] stands: a field of the step
        ("first", c_int64),
        ("kind", c_int64),
        ("table", Weight),
        ("output", c_void_p),  # [rows, in_features]
    ]

    @classmethod
    def of(cls, num_rows: int, token_ids: int, first: int, table: NativeWeight | Tensor, output: int) -> Self:
        """All but `first` and `table` are addresses. A tensor is read as it lies, so its rows must be contiguous."""
        if isinstance(table, NativeWeight):
            kind, weight = _PACKED_TABLES[table.kind], table.structure()
        else:
            kind, weight = _PLAIN_TABLES[table.dtype], Weight(table.data_ptr(), None, *table.shape)
        return cls(num_rows, token_ids, first, kind, weight, output)
