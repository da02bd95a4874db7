"""Small integers in bytes, and divisions by scales of which some are 0."""

import torch
from torch import Tensor


def bytes_of(numbers: Tensor) -> Tensor:
    """[blocks, n] of a wider type, as uint8 [blocks, n × its size]."""
    return numbers.contiguous().view(torch.uint8)


def nibbles(low: Tensor, high: Tensor) -> Tensor:
    return low | high << 4


def divided(number: float, scales: Tensor) -> Tensor:
    """number / scale, and 0 where the scale is."""
    # Divided by a tensor: torch makes a number divided by a tensor a product with its inverse, which rounds twice.
    return torch.where(scales == 0, torch.zeros_like(scales), torch.tensor(number) / where_not_0(scales))


def where_not_0(numbers: Tensor) -> Tensor:
    """With 1 in the place of 0, to be divided by."""
    return torch.where(numbers == 0, torch.ones_like(numbers), numbers)
