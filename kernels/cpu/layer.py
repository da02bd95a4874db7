"""Arguments that more than one caller fills: of products, of embeddings, and of rows as 8-bit integers.

What is quantized for an integer product is written where `Quantized` says, by whoever writes the row.
"""

import numpy

from ...records import dataclass
from ..arrays import BFLOAT16, FLOAT16, FLOAT32, Array, address
from .library import struct_of
from .structs import Embedding, Linear, Quantized, Weight
from .weights.packed import NativeWeight, padded

SUM_WIDTH = 32  # kSumWidth
HALVED_WIDTH = 16  # kHalvedWidth


def quantized_sizes(num_values: int, group: int) -> tuple[int, int, int]:
    """The sizes of a row as 8-bit integers: its values, its scales, its sums."""
    width = padded(num_values)
    return width, -(-width // group) if group else 1, width // (HALVED_WIDTH if group else SUM_WIDTH)


@dataclass
class QuantizedRows:
    """Memory for quantized rows, and the structure that points to it."""

    values: Array
    scales: Array
    totals: Array
    sums: Array
    group: int = 0

    @classmethod
    def empty(cls, rows: int, features: int, group: int = 0) -> "QuantizedRows":
        width, num_scales, num_sums = quantized_sizes(features, group)
        return cls(
            values=numpy.zeros((rows, width), numpy.int8),
            scales=numpy.zeros((rows, num_scales) if group else rows, FLOAT32),
            totals=numpy.zeros(rows, numpy.int32),
            sums=numpy.zeros((rows, num_sums), numpy.int32),
            group=group,
        )

    def structure(self, order: Array | None = None) -> Quantized:
        """`order` (int32) is the order in which an act-order checkpoint's weight wants its inputs."""
        columns, width = (self.values, self.scales, self.totals, self.sums), self.values.shape[1]
        return struct_of(Quantized, *columns, width, order, 0 if order is None else len(order), self.group)


def linear_arguments(
    num_rows: int,
    input: Array | None,
    quantized_input: Quantized | None,
    weight: NativeWeight,
    bias: Array | None,
    output: Array,
) -> Linear:
    """`num_rows` is the address of an int32; all arrays must outlive the result."""
    given = quantized_input or Quantized()
    return struct_of(
        Linear, num_rows, input, given, weight.structure(), bias, output, output.strides[0] // output.itemsize
    )


# As embedding.cpp numbers its readers.
_PLAIN_TABLES = {FLOAT32: 0, FLOAT16: 1, BFLOAT16: 2}
_PACKED_TABLES = {"fp32": 3, "fp16": 4, "bf16": 5, "int8": 6, "int4": 7, "blocks": 8}


def embedding_of(
    num_rows: int, token_ids: int, first: int, table: NativeWeight | Array, output: int, scale: float = 1.0
) -> Embedding:
    """`num_rows`, `token_ids` and `output` are addresses. An array is read as it lies: its rows are contiguous."""
    if isinstance(table, NativeWeight):
        kind, weight = _PACKED_TABLES[table.family], table.structure()
    else:
        kind, weight = _PLAIN_TABLES[table.dtype], Weight(address(table), None, *table.shape)
    return Embedding(num_rows, token_ids, first, kind, scale, weight, output)
