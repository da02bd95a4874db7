"""The places of a step at which a token is drawn, and the drafts of its rows.

A row draws a token after its last known one. Where its history goes on with drafts, it draws one at the place of each
as well: such a row is a piece of a prompt that wants its logits. Each row of logits goes through the sampler with the
counts of its own position, so the token is the one that would have been drawn there one by one.

Drafts come with a sequence that enters its slot, which claims to have said them and whose sender compares
(`NewSlot.num_claimed`), or are guessed here (`worker/drafting/`): then those count that were drawn as well, with the
token drawn after them.
"""

from collections.abc import Iterator
from dataclasses import field

import numpy

from ...records import dataclass
from .step_rows import Ints, StepRows


@dataclass
class DrawnPlaces:
    """In the order of rows and, within a row, of positions; all int64, on the host."""

    rows: Ints  # of the step
    slots: Ints
    tokens: Ints  # of the step, each of which predicts the token to draw
    positions: Ints  # of the tokens to draw

    @classmethod
    def of(cls, rows: StepRows) -> "DrawnPlaces":
        counts = rows.num_drawn
        row = numpy.repeat(numpy.arange(len(rows)), counts)
        nth = numpy.arange(len(row)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
        before = (rows.ends - counts)[row] + nth
        tokens = (numpy.cumsum(rows.num_tokens) - rows.num_tokens)[row] + before - rows.starts[row]
        return cls(row, rows.slots[row], tokens, before + 1)

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self, length: int) -> Iterator[tuple[int, "DrawnPlaces"]]:
        """Pieces of so many places, each with the number of places before it."""
        for start in range(0, len(self), length):
            own = slice(start, start + length)
            yield start, DrawnPlaces(self.rows[own], self.slots[own], self.tokens[own], self.positions[own])


@dataclass
class StepDrafts:
    """The drafts that were guessed for rows of a step."""

    rows: list[int]
    tokens: list[Ints]  # of each of these rows, int32
    num_accepted: list[int] = field(default_factory=list)  # of each, once the step has drawn its tokens

    def num_drafted(self, num_rows: int) -> Ints:
        """How many drafts each row of the step has."""
        counts = numpy.zeros(num_rows, numpy.int64)
        counts[self.rows] = [len(each) for each in self.tokens]
        return counts

    def compare(self, drawn_rows: Ints, drawn: Ints) -> None:
        """Accept each row's drafts up to the first that isn't what was drawn at its place."""
        for row, drafts in zip(self.rows, self.tokens):
            first = int(numpy.searchsorted(drawn_rows, row))
            is_wrong = drawn[first : first + len(drafts)] != drafts
            self.num_accepted.append(int(is_wrong.argmax()) if is_wrong.any() else len(drafts))
