"""Log-probabilities of given next tokens behind a prompt, for decisions of models that write text.

They are those of `steps/logprobs.py`, bit for bit: each label is ranked as if it had been chosen in a row of its own.
"""

from collections.abc import Sequence

import numpy

from ...kernels.arrays import DeviceArray
from ...protocol.messages import StepPlan
from ...protocol.pooling.form import Vectors
from ..steps.batch import Batch
from ..steps.forward_pass import ForwardPass
from ..steps.logprobs import LogprobOperations, piece_length
from ..steps.step_rows import StepRows


class LabelLogprobs:
    """Takes the place of `Pooling` in models that write text."""

    def __init__(self, logprobs: LogprobOperations, forward_pass: ForwardPass, vocab_size: int, *, is_first: bool):
        """`is_first`: this rank has the logits."""
        self._logprobs = logprobs
        self._forward_pass = forward_pass
        self._piece = piece_length(vocab_size)
        self._is_first = is_first
        self._labels: dict[int, tuple[int, numpy.ndarray]] = {}  # by slot: the prompt's length, and int32 ids

    def enter(self, plan: StepPlan) -> None:
        """Begin the prompts that enter slots; those that were there before have ended or given way."""
        for new in plan.new:
            self._labels.pop(new.slot, None)
            if new.pooled is not None and new.pooled.labels:
                self._labels[new.slot] = new.num_prompt, numpy.frombuffer(new.pooled.labels, numpy.int32)

    def vectors(self, rows: StepRows, batch: Batch, hidden: DeviceArray) -> list[Vectors]:
        """The log-probabilities of the labels behind each prompt that the step ends."""
        found = []
        for row, slot in enumerate(rows.slots.tolist() if self._labels else ()):
            length, labels = self._labels.get(slot, (0, ()))
            if length and rows.ends[row] == length:
                del self._labels[slot]
                values = self._of_row(batch.query_starts[row + 1] - 1, labels, hidden)
                found.append(Vectors(row, len(values), values.tobytes()))
        return found

    def _of_row(self, place: int, labels: Sequence[int] | numpy.ndarray, hidden: DeviceArray) -> numpy.ndarray:
        device = self._logprobs.device
        logits = self._forward_pass.logits(hidden, device.put(numpy.array([place])))
        if not self._is_first:  # others may have no logits
            return numpy.zeros(len(labels), numpy.float32)
        pieces = []
        for start in range(0, len(labels), self._piece):
            chosen = numpy.asarray(labels[start : start + self._piece], numpy.int64)
            repeated = logits[device.put(numpy.zeros(len(chosen), numpy.int64))]
            pieces.append(self._logprobs.of_tokens(repeated, device.put(chosen), 0).logprobs[:, 0].copy())
        return numpy.concatenate(pieces)
