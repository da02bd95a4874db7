"""The rows of one step with their counts, which the host knows without waiting for a device."""

import numpy

from ...kernels.states import Segments
from ...records import dataclass

Ints = numpy.ndarray


@dataclass
class StepRows:
    """The rows of one step with the counts before it; all int64, on the host."""

    slots: Ints
    num_tokens: Ints
    starts: Ints  # position of the first token to compute
    ends: Ints  # position after the last one
    is_sampling: Ints  # bool: the next token is not known yet
    is_searched: Ints  # bool: likewise, and the engine chooses it among candidates
    num_drafts: Ints  # how many drafts of its history follow a token that it computes
    segments: tuple[Segments | None, ...] = ()  # for each group of layers with states

    @classmethod
    def none(cls) -> "StepRows":
        nobody, nowhere = numpy.zeros(0, numpy.int64), numpy.zeros(0, bool)
        return cls(*(nobody,) * 4, nowhere, nowhere, nobody)

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def num_drawn(self) -> Ints:
        """How many tokens each row draws."""
        drawn: Ints = self.num_drafts + self.is_sampling
        return drawn

    @property
    def wants_logits(self) -> Ints:
        wanted: Ints = self.is_sampling | self.is_searched
        return wanted


def column(packed: bytes) -> Ints:
    """Read a plan's column as int64."""
    return numpy.frombuffer(packed, numpy.int32).astype(numpy.int64)


def all_within(values: Ints, bound: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < bound)
