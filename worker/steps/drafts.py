"""The places of a step at which a row draws a token though the history has one there already: a draft.

A row that computes drafts is a piece of a prompt that wants its logits. Each row of logits goes through the sampler
with the counts of its own position, so the token is the one that would have been drawn there one by one. Whoever sent
the drafts compares. Places are drawn in pieces, since the logits of a whole step would not fit into memory.
"""

from collections.abc import Iterator, Sequence

import numpy

from ...records import dataclass
from .step_rows import Ints, StepRows


@dataclass
class DraftPlaces:
    """In the order of rows and, within a row, of positions; all int64, on the host."""

    rows: Ints  # of the step
    slots: Ints
    tokens: Ints  # of the step, each of which predicts the draft after it
    positions: Ints  # of the drafts

    @classmethod
    def of(cls, rows: StepRows, query_starts: Sequence[int]) -> "DraftPlaces":
        counts = rows.num_drafts
        row = numpy.repeat(numpy.arange(len(rows)), counts)
        nth = numpy.arange(len(row)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
        # A row that reaches the end of its history samples there as well; its drafts come before.
        before = (rows.ends - rows.wants_logits - counts)[row] + nth
        tokens = numpy.array(query_starts[:-1])[row] + before - rows.starts[row]
        return cls(row, rows.slots[row], tokens, before + 1)

    def __len__(self) -> int:
        return len(self.rows)

    def pieces(self, length: int) -> Iterator[tuple[int, "DraftPlaces"]]:
        """Pieces of so many places, each with the number of places before it."""
        for start in range(0, len(self), length):
            own = slice(start, start + length)
            yield start, DraftPlaces(self.rows[own], self.slots[own], self.tokens[own], self.positions[own])
