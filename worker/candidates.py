"""What a row that samples nothing is asked for: its most likely next tokens, for the engine to choose among.

Log-probabilities are the model's own, ordered like all others here: equal tokens by their id. Knows nothing of beams.
"""

import numpy
from torch import Tensor

from ..kernels.sampling import scan
from ..protocol.messages import Candidates, FailedRow
from .logprobs import token_logprobs
from .sampler import FAULTS

_NOT_FINITE = FAULTS[1].message


def candidates(logits: Tensor, rows: numpy.ndarray, counts: numpy.ndarray) -> tuple[list[Candidates], list[FailedRow]]:
    """For each row of logits (whose number in the step is in `rows`) as many as it asks for, or what is wrong."""
    scanned = scan(logits)
    most = min(int(counts.max()), logits.shape[1])
    found = token_logprobs(logits, scanned.best, most)
    given: list[Candidates] = []
    failed: list[FailedRow] = []
    for place, is_finite in enumerate(scanned.is_finite.tolist()):
        if not is_finite:
            failed.append(FailedRow(int(rows[place]), _NOT_FINITE))
            continue
        # Column 0 is the chosen token of those that sample.
        own = slice(1, 1 + min(int(counts[place]), most))
        token_ids, logprobs = found.token_ids[place, own], found.logprobs[place, own]
        given.append(Candidates(int(rows[place]), token_ids.tobytes(), logprobs.tobytes()))
    return given, failed
