"""What a source of drafts is: it sees sequences enter and leave their slots, and guesses their next tokens.

A proposer may be wrong at any time: whatever it guesses is checked by the sequence's own sampler. It must not be slow,
because a step waits for it.
"""

from typing import NamedTuple, Protocol

import numpy

from ...protocol.messages import NewSlot


class Look(NamedTuple):
    """A sequence that may be drafted for in this step."""

    slot: int
    tokens: numpy.ndarray  # its whole history: prompt and answer, int32, the last token not computed yet
    most: int  # drafts at most


class Guess(NamedTuple):
    """Drafts, and how likely each is to be right if those before it are: counted, or 1.0 where nothing is known."""

    tokens: list[int]
    likelihoods: list[float]


NOTHING = Guess([], [])


class Proposer(Protocol):
    name: str

    def enter(self, slot: int, new: NewSlot) -> None:
        """Take in a sequence that enters a slot, for the first time or again."""

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        """Forget a sequence whose slot is freed; `tokens` is its whole history."""

    def guess(self, looks: list[Look]) -> list[Guess]:
        """Return a guess for each look, an empty one where nothing is known."""
