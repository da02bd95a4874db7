"""Arguments that more than one caller fills: of products, of embeddings, and of rows as 8-bit integers.

What is quantized for an integer product is written where `Quantized` says, by whoever writes the row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .library import struct_of
from .structs import Embedding, Linear, Quantized, Weight
from .weights.packed import NativeWeight, padded

SUM_WIDTH = 32  # kSumWidth
HALVED_WIDTH = 16  # kHalvedWidth


def quantized_sizes(num_values: int, group: int) -> tuple[int, int, int]:
    """Of a row as 8-bit integers: its values, its scales, its sums."""
    width = padded(num_values)
    return width, -(-width // group) if group else 1, width // (HALVED_WIDTH if group else SUM_WIDTH)


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


def embedding_of(
    num_rows: int, token_ids: int, first: int, table: NativeWeight | Tensor, output: int, scale: float = 1.0
) -> Embedding:
    """`num_rows`, `token_ids` and `output` are addresses. A tensor is read as it lies: its rows are contiguous."""
    if isinstance(table, NativeWeight):
        kind, weight = _PACKED_TABLES[table.family], table.structure()
    else:
        kind, weight = _PLAIN_TABLES[table.dtype], Weight(table.data_ptr(), None, *table.shape)
    return Embedding(num_rows, token_ids, first, kind, scale, weight, output)
