"""Tensors, in which tests compute formulas, next to the arrays that weights are read and packed from."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.weights import experts, packed, quantized
from penstock.kernels.cpu.weights.packed import DEFAULT_GROUP_SIZE, NativeWeight
from penstock.kernels.operands import Kind
from penstock.kernels.torch.arrays import array_of, tensor_of


def arrays(parts: Iterable[Any]) -> list[Any]:
    """Parts of a weight, the tensors among them as arrays."""
    return [array_of(part) if isinstance(part, Tensor) else part for part in parts]


def as_tensor(given: Any) -> Tensor:
    return given if isinstance(given, Tensor) else tensor_of(given)


def equal(first: Any, second: Any) -> bool:
    """Whether both hold the same numbers."""
    return torch.equal(as_tensor(first), as_tensor(second))


def pack(parts: Iterable[Any], kind: Kind, group_size: int = DEFAULT_GROUP_SIZE) -> NativeWeight:
    return packed.pack(arrays(parts), kind, group_size)


def pack_parts(parts: Iterable[Any], kind: Kind, group_size: int) -> NativeWeight:
    return quantized.pack_parts(arrays(parts), kind, group_size)


def pack_experts(parts: Iterable[Sequence[Any]], count: int, format: WeightFormat) -> NativeWeight:
    return experts.pack_experts(map(arrays, parts), count, format)
