"""From logits to one token per row. The order of the steps, with x the row's logits and x_max the largest of them:

  1. scan          a row with a logit that is no finite number has a fault and gets token 0
  2. mask          x = -∞ where the grammar's bit is 0
  3. adjustments   in the order of `adjustments.ADJUSTMENTS`, which has the formulas
  4. scan          again, if 2 or 3 changed anything; a row with only -∞ left has a fault
  5. choice        greedy: the lowest id among the largest x. Else one token is drawn by its weight
                       w = exp((x - x_max) / temperature)                     so that p = w / Σw, and w_max = 1
                   among those that all three rules keep:
                       top_k   the first k, by falling x, equal ones by id
                       top_p   while Σ w of those before < top_p × Σ w        Σ w of the k tokens, or of all
                       min_p   w >= min_p                                     the same as p >= min_p × p_max
  6. keep          the token is appended to the row's history

5 is written as this formula in `kernels/reference/sampling/choice.py`. Optimizations that change no answer:
  - w falls as x falls, so each rule keeps a beginning of one order, and so do all three together. top_k looks at k
    tokens. top_p sums all w, which needs no order, and then sorts only the heavy ones (torch: the first 1,024; the
    native kernel: those above a weight); in the rare row in which these fall short of its share, lighter ones too.
  - min_p needs neither sum nor order, because w_max = 1. Alone, it draws in the order of ids.
  - A draw is the first token whose running sum of w exceeds u × Σ w of what is kept. u is a hash of (seed, sample,
    position), never the state of a generator, so that a row's token is the same in any batch.
  - A GPU sums nothing to draw: `backends/triton/sampler.py` takes the largest w / e, e a hash of (seed, sample,
    position, token) made exponential. P(a token wins) = w / Σw, so tokens differ from those on a CPU, but are equally
    likely.

Nothing here depends on plans, blocks or messages.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy

from ...kernels.arrays import DeviceArray
from ...kernels.sampling import Sampling
from ..ranks.parallel import Parallel
from .adjustments import Mask, adjust, allow, are_adjusted
from .parameters import ParameterTable, SamplingRows
from .processors import LogitsProcessors

__all__ = [
    "FAULTS",
    "LogitsProcessors",
    "Mask",
    "ParameterTable",
    "Sampler",
    "SamplerOutput",
    "SamplingRows",
    "are_adjusted",
    "sample",
    "sample_on_first",
]


class Fault(NamedTuple):
    """A fault of a row: the request's error code and message."""

    error_code: int
    message: str


# Faults of a row, by the number in `SamplerOutput.faults`.
FAULTS = (
    Fault(200, ""),
    Fault(500, "The model's logits are not finite numbers (NaN or infinity)."),
    Fault(400, "Masks, biases and penalties leave no token to choose from."),
)


class SamplerOutput(NamedTuple):
    chosen: DeviceArray  # int64 [rows, 2], contiguous, so that one copy to the host is enough

    @property
    def token_ids(self) -> DeviceArray:
        """One token for each row; 0 if the row has a fault."""
        return self.chosen[:, 0]

    @property
    def faults(self) -> DeviceArray:
        """Each row's index into FAULTS."""
        return self.chosen[:, 1]


# Also writes the tokens into the rows' histories.
Sampler = Callable[[DeviceArray, SamplingRows, Mask | None], SamplerOutput]


def sample_on_first(ranks: Parallel, rows: SamplingRows, draw: Callable[[], SamplerOutput]) -> SamplerOutput:
    """Rank 0's tokens, which it draws, on every rank and in every rank's histories."""
    if ranks.rank == 0:
        sampled = draw()
    else:
        sampled = SamplerOutput(rows.parameters.device.zeros((len(rows), 2), numpy.int64))
    ranks.broadcast(sampled.chosen)
    if ranks.rank != 0:
        rows.keep(sampled.token_ids)
    return sampled


def sample(ops: Sampling, logits: DeviceArray, rows: SamplingRows, mask: Mask | None = None) -> SamplerOutput:
    """Sample a token for each row of `logits` ([rows, vocabulary] float32, contiguous, overwritten)."""
    device = rows.parameters.device
    scanned = ops.scan(logits)  # [rows]: the largest logit, its lowest id, whether all are finite
    is_broken = ~scanned.is_finite
    faults = device.cast(is_broken, numpy.int64)
    wants_adjustment = bool(rows.wants.any())
    if mask is not None:
        allow(ops, logits, rows, mask)
    if wants_adjustment:
        adjust(ops, logits, rows)
    if wants_adjustment or mask is not None:
        scanned = ops.scan(logits)
        is_empty = ~is_broken & ~(abs(scanned.largest) < numpy.inf)  # NaN, too, is below nothing
        faults += 2 * is_empty
        is_broken |= is_empty
    # Fast path for the most common case: greedy rows need no parameters.
    token_ids = scanned.best if rows.are_greedy else ops.choose(logits, scanned, rows.draws())
    chosen = device.zeros((len(rows), 2), numpy.int64)
    chosen[:, 0], chosen[:, 1] = token_ids * ~is_broken, faults
    sampled = SamplerOutput(chosen)
    rows.keep(sampled.token_ids)
    return sampled
