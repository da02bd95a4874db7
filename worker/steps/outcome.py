"""Makes a `StepResult` from a step's results once they have arrived at the host.

A step is launched without waiting for its results, so that on a GPU the next one is launched before this one is done.
"""

from collections.abc import Callable
from dataclasses import field

import numpy

from ...protocol.messages import Candidates, FailedRow, Logprobs, StepResult
from ...protocol.wire import column
from ...records import dataclass
from ..device import HostCopy
from ..sampler import FAULTS
from .step_rows import Ints, StepRows

_NONE = (numpy.empty(0, numpy.int64), lambda: numpy.empty((0, 2), numpy.int64))


@dataclass
class Outcome:
    """The results of one step. Its functions are called when the results are needed, and may wait for the step."""

    rows: StepRows
    # The rows that sample, in several parts if some do so several times, and int64 [rows, 2]: token id and fault.
    sampled: list[tuple[Ints, HostCopy]] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)  # by slot: a logits processor's error
    logprobs: list[Callable[[], list[Logprobs]]] = field(default_factory=list)
    candidates: Callable[[], tuple[list[Candidates], list[FailedRow]]] = lambda: ([], [])
    certainty: list[Callable[[], bytes]] = field(default_factory=list)

    def result(self, step: int) -> StepResult:
        """The step's result, without its time."""
        sampling, token_ids, faults = self._drawn()
        wrong = set(sampling[faults > 0].tolist())
        is_right = faults == 0
        num_sampled = numpy.bincount(sampling[is_right], minlength=len(self.rows)).astype(numpy.int32)
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
            certainty=b"".join(pairs() for pairs in self.certainty),
        )

    def _drawn(self) -> tuple[Ints, Ints, Ints]:
        """The rows that sample, in order, with tokens and faults. A row's tokens after a fault don't count."""
        parts = self.sampled or [_NONE]
        rows = numpy.concatenate([own for own, _ in parts])
        token_ids, faults = numpy.concatenate([chosen() for _, chosen in parts]).T
        if len(parts) > 1:
            order = numpy.argsort(rows, kind="stable")
            rows, token_ids, faults = rows[order], token_ids[order], faults[order]
        is_kept = numpy.ones(len(rows), bool)
        for at in numpy.flatnonzero(faults).tolist():
            is_kept[at + 1 : numpy.searchsorted(rows, rows[at], "right")] = False
        return rows[is_kept], token_ids[is_kept], faults[is_kept]

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
