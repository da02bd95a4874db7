"""Makes a `StepResult` from a step's results once they have arrived at the host.

A step is launched without waiting for its results, so that on a GPU the next one is launched before this one is done.
"""

from collections.abc import Callable
from dataclasses import field

import numpy

from ...protocol.messages import Candidates, FailedRow, Logprobs, StepResult, column
from ...records import dataclass
from ..device import HostCopy
from ..sampler import FAULTS
from .step_rows import StepRows

_NONE = numpy.empty((0, 2), numpy.int64)


@dataclass
class Outcome:
    """The results of one step. Its functions are called when the results are needed, and may wait for the step."""

    rows: StepRows
    sampled: HostCopy | None = None  # int64 [rows that sample, 2]: token id and fault
    errors: dict[int, str] = field(default_factory=dict)  # by slot: a logits processor's error
    logprobs: list[Callable[[], list[Logprobs]]] = field(default_factory=list)
    candidates: Callable[[], tuple[list[Candidates], list[FailedRow]]] = lambda: ([], [])
    certainty: Callable[[], bytes] = bytes

    def result(self, step: int) -> StepResult:
        """The step's result, without its time."""
        sampling = numpy.flatnonzero(self.rows.is_sampling)
        token_ids, faults = (_NONE if self.sampled is None else self.sampled()).T
        is_right = faults == 0
        num_sampled = numpy.zeros(len(self.rows), numpy.int32)
        num_sampled[sampling[is_right]] = 1
        wrong = set(sampling[~is_right].tolist())
        candidates, failed = self.candidates()
        parts = [part for of_some in self.logprobs for part in of_some()]
        return StepResult(
            step=step,
            num_sampled=num_sampled.tobytes(),
            sampled=column(token_ids[is_right].tolist()),
            forward_time=0.0,
            failed=failed + self._failed(sampling, faults),
            logprobs=[part for part in parts if part.is_prompt or part.owner not in wrong],
            candidates=candidates,
            certainty=self.certainty(),
        )

    def _failed(self, sampling: numpy.ndarray, faults: numpy.ndarray) -> list[FailedRow]:
        """The failed rows, each with its error if known."""
        failed = []
        for at in numpy.flatnonzero(faults).tolist():
            row = int(sampling[at])
            code, message = FAULTS[faults[at]]
            if (own := self.errors.get(int(self.rows.slots[row]))) is not None:
                code, message = 500, own
            failed.append(FailedRow(row, message, code))
        return failed
