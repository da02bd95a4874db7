"""Stored parts of weights as tensors on a device, and what is quantized there as a part."""

from collections.abc import Iterator

import numpy
import torch
from torch import Tensor

from ..arrays import FLOAT32, DType
from ..reference.quantized import QuantizedTensor, quantize_int4, quantize_int8
from ..stored.parts import WeightPart
from ..stored.quantized import QuantizedPart
from .arrays import array_of, tensor_of, torch_dtype

_NUMBERS_AT_ONCE = 1 << 22  # that are widened on the host together


def pieces_of(part: WeightPart | Tensor, num_rows: int, device: torch.device) -> Iterator[Tensor]:
    """So many rows after another: floats in their own format, all others in float32."""
    if isinstance(part, numpy.ndarray):
        part = tensor_of(part)
    if isinstance(part, Tensor):
        yield from (rows.to(device) for rows in part.split(num_rows))
    elif isinstance(part, QuantizedPart):
        yield from (rows.to(device) for rows in tensor_of(part.dequantized()).split(num_rows))
    else:
        for first in range(0, part.shape[0], num_rows):
            yield tensor_of(part.rows(first, first + num_rows).dequantized(), device)


def floats_of(part: WeightPart | Tensor, dtype: DType, device: torch.device, copy: bool = False) -> Tensor:
    """[out, in]; a copy where floats are not on this device in this format, or if one is asked for."""
    if isinstance(part, numpy.ndarray):
        part = tensor_of(part)
    if isinstance(part, Tensor):
        return part.to(device, torch_dtype(dtype), copy=copy)
    if isinstance(part, QuantizedPart):
        return tensor_of(part.dequantized()).to(torch_dtype(dtype)).to(device)
    found = torch.empty(part.shape, dtype=torch_dtype(dtype), device=device)
    num_rows = max(1, _NUMBERS_AT_ONCE // part.shape[1])
    for own, rows in zip(found.split(num_rows), pieces_of(part, num_rows, device), strict=True):
        own.copy_(rows)
    return found


def quantized_tensor(part: QuantizedPart, device: torch.device) -> QuantizedTensor:
    zeros, order = (None if each is None else tensor_of(each, device) for each in (part.zeros, part.order))
    return QuantizedTensor(
        tensor_of(part.values, device), tensor_of(part.scales, device), zeros, part.group_size, order
    )


def quantized(part: WeightPart, kind: str, group_size: int) -> QuantizedPart:
    """Quantize to int8 or int4 as native kernels do, where there are none."""
    floats = floats_of(part, FLOAT32, torch.device("cpu"))
    return quantized_part(quantize_int8(floats) if kind == "int8" else quantize_int4(floats, group_size))


def quantized_part(tensor: QuantizedTensor) -> QuantizedPart:
    zeros, order = (None if each is None else array_of(each.cpu()) for each in (tensor.zeros, tensor.order))
    values, scales = array_of(tensor.values.cpu()), array_of(tensor.scales.cpu())
    return QuantizedPart(values, scales, zeros, tensor.group_size, order)
