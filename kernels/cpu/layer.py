"""The arguments of a layer's products and smaller operations on the CPU, as the kernels read them.

Field for field the structures of source/linear.hpp, quantize.hpp, norm.cpp, projection_norm.cpp, activation.cpp,
multiply.cpp, part_norms.cpp, rows.cpp and embedding.cpp. Rows are float32. What is quantized for an integer product is
written where `Quantized` says, by whoever writes the row.
"""

from ctypes import Structure, c_float, c_int64, c_void_p
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..operands import Activation
from .library import struct_of
from .weights.packed import NativeWeight, Weight, padded

SUM_WIDTH = 32  # kSumWidth
HALVED_WIDTH = 16  # kHalvedWidth


def quantized_sizes(num_values: int, group: int) -> tuple[int, int, int]:
    """Of a row as 8-bit integers: its values, its scales, its sums."""
    width = padded(num_values)
    return width, -(-width // group) if group else 1, width // (HALVED_WIDTH if group else SUM_WIDTH)


class Quantized(Structure):
    """Rows as 8-bit integers; all pointers null where nobody wants them."""

    _fields_ = [
        ("values", c_void_p),  # int8 [rows, width]
        ("scales", c_void_p),  # float32 [rows], or [rows, groups]
        ("totals", c_void_p),  # int32 [rows]
        ("sums", c_void_p),  # int32 [rows, width / SUM_WIDTH]; with groups [rows, width / HALVED_WIDTH]
        ("width", c_int64),
        ("order", c_void_p),  # int32 [num_ordered], or null: value i is input order[i]
        ("num_ordered", c_int64),
        ("group", c_int64),  # neighbours that share a scale; 0: all of a row
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


class JoinedPart(Structure):
    """One weight of several side by side."""

    _fields_ = [
        ("product", c_void_p),  # the kernel of its kind
        ("first_output", c_int64),
        ("linear", Linear),
    ]


class JoinedLinear(Structure):
    """Arguments of penstock_linear_joined."""

    _fields_ = [
        ("whole", Linear),
        ("num_parts", c_int64),
        ("parts", c_void_p),  # of JoinedPart
    ]

    @property
    def output(self) -> int:
        return self.whole.output

    @output.setter
    def output(self, address: int) -> None:
        self.whole.output = address

    @property
    def output_stride(self) -> int:
        return self.whole.output_stride

    @output_stride.setter
    def output_stride(self, stride: int) -> None:
        self.whole.output_stride = stride


@dataclass
class QuantizedRows:
    """Memory for quantized rows, and the structure that points to it."""

    values: Tensor
    scales: Tensor
    totals: Tensor
    sums: Tensor
    group: int = 0

    @classmethod
    def empty(cls, rows: int, features: int, group: int = 0) -> "QuantizedRows":
        width, num_scales, num_sums = quantized_sizes(features, group)
        return cls(
            values=torch.zeros(rows, width, dtype=torch.int8),
            scales=torch.zeros((rows, num_scales) if group else rows, dtype=torch.float32),
            totals=torch.zeros(rows, dtype=torch.int32),
            sums=torch.zeros(rows, num_sums, dtype=torch.int32),
            group=group,
        )

    def structure(self, order: Tensor | None = None) -> Quantized:
        """`order` (int32) is the order in which an act-order checkpoint's weight wants its inputs."""
        columns, width = (self.values, self.scales, self.totals, self.sums), self.values.shape[1]
        return struct_of(Quantized, *columns, width, order, 0 if order is None else len(order), self.group)


def linear_arguments(
    num_rows: int,
    input: Tensor | None,
    quantized_input: Quantized | None,
    weight: NativeWeight,
    bias: Tensor | None,
    output: Tensor,
) -> Linear:
    """`num_rows` is the address of an int32; all tensors must outlive the result."""
    given = quantized_input or Quantized()
    return struct_of(Linear, num_rows, input, given, weight.structure(), bias, output, output.stride(0))


# As embedding.cpp numbers its readers.
_PLAIN_TABLES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_PACKED_TABLES = {"fp32": 3, "fp16": 4, "bf16": 5, "int8": 6, "int4": 7, "blocks": 8}


class AddRmsNorm(Structure):
    """stream += scale × update; output = stream / sqrt(mean(stream²) + ε) × weight."""

    _fields_ = [
        ("num_rows", c_void_p),  # int32
        ("stream", c_void_p),  # [rows, width], updated in place
        ("update", c_void_p),  # [rows, width], or null
        ("scale", c_float),
        ("weight", c_void_p),  # [width]
        ("epsilon", c_float),
        ("width", c_int64),
        ("output", c_void_p),  # [rows, width]; null where only the quantized form is wanted
        ("quantized", Quantized),
    ]


class AddLayerNorm(Structure):
    """stream += scale × update; output = centred / sqrt(mean(centred²) + ε) × weight + bias.

    Centred is what the stream is less its mean.
    """

    _fields_ = [
        ("num_rows", c_void_p),  # int32
        ("stream", c_void_p),  # [rows, width], updated in place
        ("update", c_void_p),  # [rows, width], or null
        ("scale", c_float),
        ("weight", c_void_p),  # [width]
        ("bias", c_void_p),  # [width], or null
        ("epsilon", c_float),
        ("width", c_int64),
        ("output", c_void_p),  # [rows, width]; null where only the quantized form is wanted
        ("quantized", Quantized),
    ]


class SquareSums(Structure):
    """The sums of the squares of a row's queries and of its keys."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("heads", c_void_p),  # [rows, width]
        ("width", c_int64),
        ("query_width", c_int64),
        ("key_width", c_int64),
        ("output", c_void_p),  # [rows, 2]
    ]


class NormProjections(Structure):
    """x = clamp(x / sqrt(sum / total + ε) × weight, ±limit), queries and keys each by their sum."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("heads", c_void_p),  # [rows, width], changed in place
        ("width", c_int64),
        ("query_width", c_int64),
        ("key_width", c_int64),
        ("sums", c_void_p),  # [rows, 2], of all ranks
        ("query_weight", c_void_p),  # [query_width]
        ("key_weight", c_void_p),
        ("query_total", c_int64),  # how many numbers the sums are of
        ("key_total", c_int64),
        ("epsilon", c_float),
        ("limit", c_float),
    ]


# As activation.hpp numbers them.
ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu", "gelu_tanh", "relu", "relu2", "gelu_sigmoid")


class ApplyActivation(Structure):
    """output = activation(input)."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("input", c_void_p),  # [rows, width]
        ("width", c_int64),
        ("activation", c_int64),  # of ACTIVATIONS
        ("output", c_void_p),  # [rows, width]; null where only the quantized form is wanted
        ("quantized", Quantized),
    ]


class Gate(Structure):
    """output = activation(first half of a row) × second half."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("gate_up", c_void_p),  # [rows, 2 × width]
        ("width", c_int64),
        ("activation", c_int64),  # of ACTIVATIONS
        ("output", c_void_p),  # [rows, width]; null where only the quantized form is wanted
        ("quantized", Quantized),
    ]


class GatedLinear(Structure):
    """Arguments of penstock_gated_linear_<kind>: a product and the gate that reads it."""

    _fields_ = [
        ("product", c_void_p),  # of Linear
        ("gate", c_void_p),  # of Gate
    ]


class Add(Structure):
    """output = (stream + scale × update) × factor."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("stream", c_void_p),  # [rows, width]
        ("update", c_void_p),
        ("scale", c_float),
        ("factor", c_float),
        ("width", c_int64),
        ("output", c_void_p),  # the stream itself, unless ranks share the sum
        ("quantized", Quantized),
    ]


class Cap(Structure):
    """output = limit × tanh(input / limit)."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("input", c_void_p),  # [rows, width]
        ("width", c_int64),
        ("limit", c_float),
        ("output", c_void_p),  # the input itself, unless ranks share the rows
        ("output_stride", c_int64),
    ]


class Multiply(Structure):
    """output = x × y, which may be some columns of wider rows."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("x", c_void_p),  # [rows, width]
        ("y", c_void_p),  # [rows, y_stride]
        ("y_stride", c_int64),
        ("width", c_int64),
        ("output", c_void_p),  # [rows, width]
        ("quantized", Quantized),
    ]


class AddPartNorms(Structure):
    """total += x / sqrt(mean(x²) + ε) × weight, of each part of a row by itself."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("total", c_void_p),  # [rows, width], updated in place
        ("x", c_void_p),  # [rows, width]
        ("weight", c_void_p),  # [part]
        ("epsilon", c_float),
        ("part", c_int64),
        ("width", c_int64),
    ]


class AddGated(Structure):
    """output = total + update × sigmoid(gate)."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("total", c_void_p),  # [rows, width]
        ("update", c_void_p),
        ("gate", c_void_p),  # [rows]
        ("width", c_int64),
        ("output", c_void_p),  # the total itself, unless ranks share the sum
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


class PlaceRows(Structure):
    """Arguments of penstock_put_rows and penstock_add_rows: part of the rows that the step's tokens get."""

    _fields_ = [
        ("step", c_void_p),
        ("stream", c_void_p),  # [rows, width], changed in place
        ("width", c_int64),
        ("part", c_int64),
    ]


class Embedding(Structure):
    """output[i] = scale × table[token_ids[i] - first]; zeros where the table doesn't hold the id."""

    _fields_ = [
        ("num_rows", c_void_p),
        ("token_ids", c_void_p),  # where a pointer to int64 [rows] stands: a field of the step
        ("first", c_int64),
        ("kind", c_int64),
        ("scale", c_float),
        ("table", Weight),
        ("output", c_void_p),  # [rows, in_features]
    ]

    @classmethod
    def of(
        cls, num_rows: int, token_ids: int, first: int, table: NativeWeight | Tensor, output: int, scale: float = 1.0
    ) -> Self:
        """`num_rows`, `token_ids` and `output` are addresses. A tensor is read as it lies: its rows are contiguous."""
        if isinstance(table, NativeWeight):
            kind, weight = _PACKED_TABLES[table.family], table.structure()
        else:
            kind, weight = _PLAIN_TABLES[table.dtype], Weight(table.data_ptr(), None, *table.shape)
        return cls(num_rows, token_ids, first, kind, scale, weight, output)
