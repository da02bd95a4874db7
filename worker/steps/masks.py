"""The masks of a step's rows, for the sampler: one for each token that a row samples."""

import numpy

from ...protocol.messages import MaskFrame, StepPlan
from ...protocol.wire import mask_bytes, values
from ...records import dataclass
from ..plan_error import PlanError
from ..sampler import Mask
from .step_rows import Ints, StepRows


@dataclass
class StepMasks:
    rows: StepRows
    masked: Ints  # the row of each mask
    nth: Ints  # which of its row's tokens it is for
    bits: numpy.ndarray  # [masks, words] int32

    @classmethod
    def of(cls, plan: StepPlan, rows: StepRows, frame: MaskFrame, vocab_size: int) -> "StepMasks":
        """Read a frame; raises if it has other masks than the plan asks for."""
        masked, framed = numpy.array(values(plan.masked)), numpy.array(values(frame.rows))
        words = mask_bytes(vocab_size) // 4
        wanted = numpy.repeat(masked, rows.num_drawn[masked])
        if sorted(wanted) != sorted(framed) or len(frame.bits) != len(framed) * words * 4:
            raise PlanError(
                f"The mask of step {plan.step} has rows {framed.tolist()} and {len(frame.bits)} bytes, where the plan "
                f"masks rows {wanted.tolist()} at {words * 4} bytes each."
            )
        order = numpy.argsort(framed, kind="stable")
        framed, bits = framed[order], numpy.frombuffer(frame.bits, numpy.int32).reshape(-1, words)[order]
        return cls(rows, framed, numpy.arange(len(framed)) - numpy.searchsorted(framed, framed), bits)

    def of_places(self, start: int, end: int) -> Mask | None:
        """The masks of a piece of the places at which the step draws tokens."""
        firsts = numpy.cumsum(self.rows.num_drawn) - self.rows.num_drawn
        place = firsts[self.masked] + self.nth
        is_within = (start <= place) & (place < end)
        return Mask(place[is_within] - start, self.bits[is_within]) if is_within.any() else None


def check_masked(plan: StepPlan, rows: StepRows) -> None:
    samples = numpy.flatnonzero(rows.num_drawn)
    if not set(samples.tolist()).issuperset(values(plan.masked)):
        raise PlanError(f"The plan masks rows {values(plan.masked).tolist()}, and of these some sample nothing.")
