"""The arguments of products on the CPU, as the kernels read them.

Field for field the structures of source/linear.hpp and source/quantize.hpp.
"""

from ctypes import Structure, c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from .weights import NativeWeight, Weight, padded

SUM_WIDTH = 32  # kSumWidth


class Quantized(Structure):
    """Rows as 8-bit integers; all pointers null where nobody wants them."""

    _fields_ = [
        ("values", c_void_p),  # int8 [rows, width]
        ("scales", c_void_p),  # float32 [rows]
        ("totals", c_void_p),  # int32 [rows]
        ("sums", c_void_p),  # int32 [rows, width / SUM_WIDTH]
        ("width", c_int64),
        ("order", c_void_p),  # int32 [num_ordered], or null: value i is input order[i]
        ("num_ordered", c_int64),
    ]


class Quantize(Structure):
    """Arguments of penstock_quantize."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("input", c_void_p),  # float32 [rows, width]
        ("width", c_int64),
        ("quantized", Quantized),
    ]


class Linear(Structure):
    """Arguments of penstock_linear_<kind>."""

    _fields_ = [
        ("num_rows", c_void_p),  # int32
        ("input", c_void_p),  # float32 [rows, in_features]: read by float weights only
        ("quantized_input", Quantized),  # read by integer weights only
        ("weight", Weight),
        ("bias", c_void_p),  # float32 [out_features], or null
        ("output", c_void_p),  # float32 [rows, output_stride]
        ("output_stride", c_int64),
    ]


@dataclass
class QuantizedRows:
    """Memory for quantized rows, and the structure that points to it."""

    values: Tensor
    scales: Tensor
    totals: Tensor
    sums: Tensor

    @classmethod
    def empty(cls, rows: int, features: int) -> "QuantizedRows":
        width = padded(features)
        return cls(
            values=torch.zeros(rows, width, dtype=torch.int8),
            scales=torch.zeros(rows, dtype=torch.float32),
            totals=torch.zeros(rows, dtype=torch.int32),
            sums=torch.zeros(rows, width // SUM_WIDTH, dtype=torch.int32),
        )

    def structure(self, order: Tensor | None = None) -> Quantized:
        """`order` (int32) is the order in which an act-order checkpoint's weight wants its inputs."""
        return Quantized(
            self.values.data_ptr(),
            self.scales.data_ptr(),
            self.totals.data_ptr(),
            self.sums.data_ptr(),
            self.values.shape[1],
            None if order is None else order.data_ptr(),
            0 if order is None else len(order),
        )


def linear_arguments(
    num_rows: int,
    input: Tensor | None,
    quantized_input: Quantized | None,
    weight: NativeWeight,
    bias: Tensor | None,
    output: Tensor,
) -> Linear:
    """`num_rows` is the address of an int32; all tensors must outlive the result."""
    return Linear(
        num_rows,
        None if input is None else input.data_ptr(),
        quantized_input or Quantized(),
        weight.structure(),
        None if bias is None else bias.data_ptr(),
        output.data_ptr(),
        output.stride(0),
    )
