"""Makes a `StepResult` from a step's results once they have arrived at the host.

A step is launched without waiting for its results, so that on a GPU the next one is launched before this one is done.
"""

from collections.abc import Callable
from dataclasses import field
from itertools import chain

import numpy

from ...protocol.messages import Candidates, FailedRow, Logprobs, StepResult
from ...protocol.pooling.form import Vectors
from ...protocol.wire import column, values
from ...records import dataclass
from ..device import HostCopy
from ..sampler import FAULTS
from .drafts import StepDrafts
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
    drafts: StepDrafts | None = None  # that were guessed for its rows
    vectors: list[Vectors] = field(default_factory=list)

    def result(self, step: int) -> StepResult:
        """The step's result, without its time."""
        sampling, token_ids, faults = self._counting()
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
            logprobs=_counting_logprobs(parts, num_sampled),
            candidates=candidates,
            certainty=_counting_certainty(b"".join(pairs() for pairs in self.certainty), num_sampled),
            num_drafted=b"" if self.drafts is None else column(self.drafts.num_drafted(len(self.rows)).tolist()),
            vectors=self.vectors,
        )

    def drawn(self) -> tuple[Ints, Ints, Ints]:
        """The rows that sample, in order and as often as they do, with tokens and faults."""
        parts = self.sampled or [_NONE]
        rows = numpy.concatenate([own for own, _ in parts])
        token_ids, faults = numpy.concatenate([chosen() for _, chosen in parts]).T
        return rows, token_ids, faults

    def _counting(self) -> tuple[Ints, Ints, Ints]:
        """The same, without a row's tokens after a wrong draft or a fault."""
        rows, token_ids, faults = self.drawn()
        counts = numpy.bincount(rows, minlength=len(self.rows))
        if self.drafts is not None:
            counts[self.drafts.rows] = [1 + each for each in self.drafts.num_accepted]
        nth = numpy.arange(len(rows)) - numpy.searchsorted(rows, rows)
        for at in numpy.flatnonzero(faults).tolist():
            counts[rows[at]] = min(counts[rows[at]], nth[at] + 1)
        is_counting = nth < counts[rows]
        return rows[is_counting], token_ids[is_counting], faults[is_counting]

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


def _counting_logprobs(parts: list[Logprobs], num_sampled: Ints) -> list[Logprobs]:
    """Drop those of tokens that don't count. Each row's are in the order of its tokens."""
    left = num_sampled.tolist()
    return [part for part in parts if part.is_prompt or _is_left(left, part.owner)]


def _counting_certainty(found: bytes, num_sampled: Ints) -> bytes:
    """Likewise."""
    left, pairs = num_sampled.tolist(), values(found)
    each = zip(pairs[::2], pairs[1::2], strict=True)
    return column(chain.from_iterable(pair for pair in each if _is_left(left, pair[0])))


def _is_left(left: list[int], row: int) -> bool:
    """Whether one more token of a row counts."""
    left[row] -= 1
    return left[row] >= 0
