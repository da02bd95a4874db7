"""The most likely next tokens of rows that sample nothing, for the engine's beam search to choose from.

Log-probabilities are the model's own; equal tokens are ordered by their id, as everywhere.
"""

from collections.abc import Callable

import numpy
from torch import Tensor

from ...kernels.sampling import scan
from ...protocol.messages import Candidates, FailedRow
from ..device import HostCopy
from ..sampler import FAULTS
from .logprobs import TokenLogprobs, token_logprobs

_NOT_FINITE = FAULTS[1].message


def candidates(
    logits: Tensor, rows: numpy.ndarray, counts: numpy.ndarray
) -> Callable[[], tuple[list[Candidates], list[FailedRow]]]:
    """For each row of logits (whose number in the step is in `rows`) as many as it asks for, or what is wrong."""
    scanned = scan(logits)
    most = min(int(counts.max()), logits.shape[1])
    found, are_finite = token_logprobs(logits, scanned.best, most), HostCopy(scanned.is_finite)
    return lambda: _told(found, are_finite.numpy(), rows, numpy.minimum(counts, most))


def _told(
    found: TokenLogprobs, are_finite: numpy.ndarray, rows: numpy.ndarray, counts: numpy.ndarray
) -> tuple[list[Candidates], list[FailedRow]]:
    given: list[Candidates] = []
    failed: list[FailedRow] = []
    ids, logprobs = found.token_ids, found.logprobs
    for place, row in enumerate(rows.tolist()):
        if not are_finite[place]:
            failed.append(FailedRow(row, _NOT_FINITE))
            continue
        # Column 0 is the chosen token of those that sample.
        own = slice(1, 1 + int(counts[place]))
        given.append(Candidates(row, ids[place, own].tobytes(), logprobs[place, own].tobytes()))
    return given, failed
