"""From logits to one token per row: adjust, then choose.

Sampling reads what the model said of a row, the row's parameters and its history; it changes the logits in place.
Knows nothing of plans, blocks or messages.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.sampling import choose, scan
from .adjustments import Mask, adjust, allow
from .parameters import ParameterTable
from .rows import SamplingRows

__all__ = ["FAULTS", "Mask", "ParameterTable", "Sampled", "SamplingRows", "sample"]

# What can be wrong with a row, by the number in `Sampled.faults`.
FAULTS = (
    "",
    "The model's logits are not finite numbers (NaN or infinity).",
    "Masks, biases and penalties leave no token to choose from.",
)


class Sampled(NamedTuple):
    token_ids: Tensor  # [rows] int64; 0 where the row has a fault
    faults: Tensor  # [rows] int64, index into FAULTS


def sample(logits: Tensor, rows: SamplingRows, mask: Mask | None = None) -> Sampled:
    """One token for each row of `logits` ([rows, vocabulary] float32, contiguous, overwritten)."""
    scanned = scan(logits)
    is_finite = scanned.is_finite
    if mask is not None:
        allow(logits, mask)
    if adjust(logits, rows) or mask is not None:
        scanned = scan(logits)
    is_choosable = torch.isfinite(scanned.largest)
    token_ids = choose(logits, scanned, rows.draws())
    faults = torch.where(is_finite, torch.where(is_choosable, 0, 2), 1)
    return Sampled(torch.where(faults == 0, token_ids, 0), faults)
