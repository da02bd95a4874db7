"""From logits to one token per row: adjust, choose, and write it down.

Sampling reads what the model said of a row, the row's parameters and its history; it changes the logits in place, and
writes the token behind the history.
Knows nothing of plans, blocks or messages.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.sampling import DeviceDraws, DeviceMask, choose, scan
from .adjustments import Mask, adjust, allow, are_adjusted
from .parameters import ParameterTable
from .processors import Processors
from .rows import SamplingRows

__all__ = [
    "FAULTS",
    "Choose",
    "Mask",
    "ParameterTable",
    "Processors",
    "Sample",
    "Sampled",
    "SamplingRows",
    "are_adjusted",
    "sample",
    "sample_by_race",
]


class Fault(NamedTuple):
    """Whose it is, as the request's error code says it, and what."""

    error_code: int
    message: str


# What can be wrong with a row, by the number in `Sampled.faults`.
FAULTS = (
    Fault(200, ""),
    Fault(500, "The model's logits are not finite numbers (NaN or infinity)."),
    Fault(400, "Masks, biases and penalties leave no token to choose from."),
)


class Sampled(NamedTuple):
    chosen: Tensor  # int64 [rows, 2], contiguous: one copy brings all of it to the host

    @property
    def token_ids(self) -> Tensor:
        """One for each row; 0 where the row has a fault."""
        return self.chosen[:, 0]

    @property
    def faults(self) -> Tensor:
        """Of each row the index into FAULTS."""
        return self.chosen[:, 1]


# The tokens are in the rows' histories then.
Sample = Callable[[Tensor, SamplingRows, Mask | None], Sampled]
Choose = Callable[[Tensor, DeviceDraws, DeviceMask | None], Tensor]  # as `choose_on_device`


def sample(logits: Tensor, rows: SamplingRows, mask: Mask | None = None) -> Sampled:
    """One token for each row of `logits` ([rows, vocabulary] float32, contiguous, overwritten)."""
    scanned = scan(logits)
    is_broken = ~scanned.is_finite
    faults = is_broken.to(torch.int64)
    if mask is not None:
        allow(logits, mask)
    if adjust(logits, rows) or mask is not None:
        scanned = scan(logits)
        is_empty = ~is_broken & ~torch.isfinite(scanned.largest)
        faults += 2 * is_empty
        is_broken |= is_empty
    # Few operations where many steps pass: a greedy row needs no parameters.
    token_ids = scanned.best if rows.are_greedy else choose(logits, scanned, rows.draws())
    sampled = Sampled(torch.stack((token_ids.masked_fill(is_broken, 0), faults), 1))
    rows.keep(sampled.token_ids)
    return sampled


def sample_by_race(choose: Choose, logits: Tensor, rows: SamplingRows, mask: Mask | None = None) -> Sampled:
    """The same for a GPU, which is asked for nothing meanwhile; what `choose` draws are other tokens, as likely."""
    if mask is not None:
        allow(logits, mask)
    adjust(logits, rows)
    return Sampled(choose(logits, rows.device_draws(), None))
