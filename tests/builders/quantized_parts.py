"""Random parts of quantized checkpoints, and those that no product takes over as they are; and parts of a weight as
arrays, from which native weights are packed, next to the tensors in which tests compute formulas.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.weights import experts, packed, quantized
from penstock.kernels.cpu.weights.packed import DEFAULT_GROUP_SIZE, NativeWeight
from penstock.kernels.operands import Kind
from penstock.kernels.stored.parts import WeightPart
from penstock.kernels.stored.quantized import QuantizedPart
from penstock.kernels.torch.arrays import array_of, tensor_of

quick = settings(max_examples=25)


def draws(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def part(
    outputs: int = 40,
    inputs: int = 128,
    group_size: int = 32,
    bits: int = 4,
    has_zeros: bool = False,
    order: Tensor | None = None,
    dtype: torch.dtype = torch.float16,
    seed: int = 0,
) -> QuantizedPart:
    generator = torch.Generator().manual_seed(seed)
    groups = -(-inputs // group_size)
    values = torch.randint(0, 2**bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 2**bits, (outputs, groups), dtype=torch.uint8, generator=generator) if has_zeros else None
    scales = torch.rand(outputs, groups, generator=generator).to(dtype)
    known, ordered = (None if each is None else array_of(each) for each in (zeros, order))
    return QuantizedPart.of(bits, array_of(values), array_of(scales), known, group_size, ordered)


def floats(*parts: WeightPart) -> Tensor:
    return torch.cat([as_tensor(each.dequantized() if hasattr(each, "dequantized") else each) for each in parts])


# Whatever the sizes of groups that products take.
WITHOUT_A_PRODUCT = [
    pytest.param((part(bits=8, group_size=24),), id="odd groups of 8 bits"),
    pytest.param((part(), part(group_size=64)), id="unlike groups"),
    pytest.param((part(), part(bits=8, group_size=128)), id="unlike bits"),
    pytest.param((part(), draws(3, 128)), id="some floats"),
    pytest.param((part(order=torch.randperm(128).int()), part()), id="some ordered"),
    pytest.param(
        (part(order=torch.arange(128).flip(0).int()), part(order=torch.arange(128).roll(1).int())), id="unlike orders"
    ),
]


# --- arrays -----------------------------------------------------------------------------------------------------------


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
