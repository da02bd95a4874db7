"""Answers that have fallen into a loop (`early_stop`): so many tokens in a row that the model had no doubt of.

The worker says of each token whether it was as likely as its request's threshold; here is counted, token by token as
results come, so that neither company nor steps in flight matter.
"""

from collections.abc import Iterator

from ..protocol.messages import StepResult, values
from .request import Sequence
from .step import Step


def repetitive(step: Step, result: StepResult) -> Iterator[Sequence]:
    """The sequences that this step's tokens end."""
    certainty = values(result.certainty)
    for row, is_certain in zip(certainty[::2], certainty[1::2], strict=True):
        sequence = step.rows[row]
        early_stop = sequence.params.early_stop
        if early_stop is None or sequence.has_ended or sequence in step.dropped:
            continue
        sequence.num_certain = sequence.num_certain + 1 if is_certain else 0
        if sequence.num_certain >= early_stop.window_size:
            yield sequence
