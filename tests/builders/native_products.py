"""Products by the native kernels themselves, without a recorded step; and rows that are the same in any company."""

from collections.abc import Callable, Iterable
from ctypes import addressof, c_int32
from dataclasses import replace

import torch
from torch import Tensor

from penstock.kernels.cpu.layer import QuantizedRows, embedding_of, linear_arguments
from penstock.kernels.cpu.library import Library
from penstock.kernels.cpu.structs import Quantize
from penstock.kernels.cpu.weights.packed import NativeWeight
from penstock.kernels.torch.arrays import array_of, tensor_of


def empty_rows(rows: int, features: int, group: int = 0) -> QuantizedRows:
    """Memory for quantized rows, in tensors."""
    made = QuantizedRows.empty(rows, features, group)
    return replace(made, **{name: tensor_of(getattr(made, name)) for name in ("values", "scales", "totals", "sums")})


def quantized(library: Library, x: Tensor, group: int = 0, order: Tensor | None = None) -> QuantizedRows:
    rows, count = empty_rows(*x.shape, group), c_int32(len(x))
    library.call("penstock_quantize", Quantize(addressof(count), x.data_ptr(), x.shape[1], rows.structure(order)))
    return rows


def product(
    library: Library, x: Tensor, weight: NativeWeight, bias: Tensor | None = None, order: Tensor | None = None
) -> Tensor:
    """The kernel's output, within a frame that nobody may write to."""
    framed, count = torch.full((len(x), weight.out_features + 3), 7.0), c_int32(len(x))
    rows = quantized(library, x, weight.row_group, order)
    arguments = linear_arguments(addressof(count), x, rows.structure(order), weight, bias, array_of(framed))
    library.call(f"penstock_linear_{weight.family}", arguments)
    assert (framed[:, weight.out_features :] == 7).all(), "columns beyond the output were written"
    return framed[:, : weight.out_features].contiguous()


def embedded(library: Library, token_ids: Tensor, table: Tensor | NativeWeight, first: int, width: int) -> Tensor:
    output, count = torch.full((len(token_ids), width), torch.nan), c_int32(len(token_ids))
    ids = torch.tensor([token_ids.data_ptr()])
    stored = array_of(table) if isinstance(table, Tensor) else table
    arguments = embedding_of(addressof(count), ids.data_ptr(), first, stored, output.data_ptr())
    library.call("penstock_embedding", arguments)
    return output


def assert_free_of_company(
    library: Library,
    run: Callable[[slice], Tensor],
    num_rows: int,
    counts: Iterable[int],
    threads: Iterable[int] = (1, 2, 3),
) -> None:
    """`run` computes a slice of rows: each with the bits that it has alone, at either end, by any number of threads."""
    alone = torch.cat([run(slice(row, row + 1)) for row in range(num_rows)])
    try:
        for number in threads:
            library.set_threads(number)
            for count in counts:
                for first in {0, num_rows - count}:
                    found, own = run(slice(first, first + count)), slice(first, first + count)
                    assert torch.equal(found, alone[own]), f"{count} rows from {first} on, {number} threads"
    finally:
        library.set_threads(1)
