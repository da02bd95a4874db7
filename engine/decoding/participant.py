"""The interface through which strategies with sequences, and speculation, take part in planning a step."""

from ...protocol.messages import StepResult
from ..request import DecodingStrategy, Sequence
from ..step import ScheduledStep


class Participant:
    """Takes part in planning every step."""

    def before_decodes(self, step: ScheduledStep) -> None:
        """Called when blocks have been freed, before the step has any row."""

    def after_decodes(self, step: ScheduledStep, budget: int) -> None:
        """Called when the step has a one-token row for each decoding sequence, and room for `budget` more tokens."""

    def after_admission(self, step: ScheduledStep) -> None:
        """Called when the step has all its rows."""

    def before_results(self, step: ScheduledStep, result: StepResult) -> None:
        """Called when the results of a step have arrived, before they are taken."""


class ActiveDecoding(Participant, DecodingStrategy):
    """A strategy that takes part while it has members."""

    def __init__(self) -> None:
        self.members: set[Sequence] = set()  # its sequences that have not ended
