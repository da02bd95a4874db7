"""Arguments of operations, copied to another device, and how far apart two results lie.

An argument is a tensor, or something made of tensors. Knows no operation in particular.
"""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from penstock.kernels.paged import PagedKV

# How far, in the mean, a result in this format may lie from one that was computed in float32.
LIMITS = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def with_tensors(value: Any, change: Callable[[Tensor], Tensor], device: torch.device | None = None) -> Any:
    """A copy in which every tensor is what `change` makes of it; devices that are named become `device`."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, torch.device):
        return device or value
    if isinstance(value, tuple):
        parts = [with_tensors(part, change, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [with_tensors(part, change, device) for part in value]
    if isinstance(value, dict):
        return {name: with_tensors(part, change, device) for name, part in value.items()}
    if type(value).__module__.startswith("penstock."):
        made = copy.copy(value)
        for name, part in vars(value).items():
            object.__setattr__(made, name, with_tensors(part, change, device))
        return made
    return value


def copied_to(value: Any, device: str) -> Any:
    return with_tensors(value, lambda tensor: tensor.to(device, copy=True), torch.device(device))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All that a result is made of; keys and values as the numbers that they stand for."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, PagedKV):
        yield from value.plain
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)


def distance(found: Tensor, expected: Tensor) -> float:
    """‖found - expected‖ / ‖expected‖ where both are finite; infinite where only one is, or where shapes differ."""
    if found.shape != expected.shape:
        return math.inf
    found, expected = found.double(), expected.to(found.device).double()
    is_finite = expected.isfinite()
    if not torch.equal(found.isfinite(), is_finite) or not torch.equal(found.isnan(), expected.isnan()):
        return math.inf
    found, expected = found[is_finite], expected[is_finite]
    return float((found - expected).norm() / expected.norm().clamp(min=1e-30))


def share_of_different(found: Tensor, expected: Tensor) -> float:
    return float((found != expected.to(found.device)).double().mean()) if found.numel() else 0.0
