"""Applies grammars to planned rows: masks their tokens, ends sequences, and drops results.

A guided row is planned ahead like any other. Its mask depends on the tokens of the steps before, so a step's masks go
to the workers once it has become the oldest in flight. Meanwhile the workers compute the forward pass, and they wait
for masks only before they sample. Certain tokens that no step in flight samples are sent as forced ones, as far as the
sequence's blocks and the step's budget reach; the mask after them then allows just one token.

This assumes that a mask arrives in time. When a grammar has become too expensive for that and moves to the follower's
process (`grammar/remote.py`), the sequence's planned rows are dropped: it gives up its slot and blocks and comes back
with its next mask. From then on it keeps both and is planned only with its mask.
"""

import logging
from array import array
from collections import deque
from collections.abc import Iterator
from itertools import islice

from ...protocol.messages import MaskFrame, SequenceEnded, StepResult
from ..admission.queue import WaitingQueue
from ..counters import Counters
from ..grammar.calls import Guide
from ..grammar.constraint import Busy, Constraint
from ..grammar.constraints import Constraints, allows_nothing
from ..grammar.remote import RemoteConstraint
from ..publisher import Publisher
from ..request import Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .participant import ActiveDecoding
from .strategy import PlainDecoding, end_at, refused

_LOG = logging.getLogger(__name__)


class GuidedDecoding(ActiveDecoding):
    def __init__(
        self,
        constraints: Constraints,
        plain: PlainDecoding,
        running: RunningBatch,
        waiting: WaitingQueue,
        in_flight: deque[ScheduledStep],
        publisher: Publisher,
        counters: Counters,
    ) -> None:
        super().__init__()
        self._constraints = constraints
        self._plain = plain
        self._publisher = publisher
        self._counters = counters
        self._running = running
        self._waiting = waiting
        self._in_flight = in_flight

    def begin(self, sequence: Sequence) -> Busy | str | None:
        return self.hold(sequence, Guide.of_answer(sequence.request.prompt, sequence.request.endings))

    def hold(self, sequence: Sequence, guide: Guide) -> Busy | str | None:
        """Hold the rest of the sequence to a guide. Returns a refusal, if any."""
        if not self.members:
            self.begin_time()  # it isn't counted without members
        self.members.add(sequence)
        sequence.decoding, sequence.guide = self, guide
        return self._final(sequence, self._constraints.begin(sequence))

    def hold_at_once(self, sequence: Sequence, guide: Guide) -> None:
        """Hold the very next token to a guide: the sequence's tokens in flight don't count."""
        if (refusal := self.hold(sequence, guide)) is not None:
            self.end(sequence, refused(sequence, refusal))
        elif sequence.decoding is self:
            self._restart(sequence)

    def ready(self) -> Iterator[tuple[Sequence, Busy | str | None]]:
        """Sequences whose grammar has been compiled, each with the refusal that ends it, if any."""
        for sequence, refusal in self._constraints.ready():
            yield sequence, self._final(sequence, refusal)

    def _final(self, sequence: Sequence, refusal: Busy | str | None) -> Busy | str | None:
        """Return a refusal that ends the sequence. Only its own grammar does so; without a call's grammar it
        continues."""
        if isinstance(refusal, str) and sequence.guide is not None and sequence.guide.is_call:
            self._give_up(sequence, refusal)
            return None
        return refusal

    # --- planning ---------------------------------------------------------------------------------------------------

    def after_decodes(self, step: ScheduledStep, budget: int) -> None:
        """Add the certain tokens to the step's rows, each of which computes one token so far."""
        for row, sequence in enumerate(step.rows):
            constraint = sequence.constraint
            if constraint is None or not constraint.may_force or sequence.num_doubtful or not budget:
                continue
            start = sequence.num_computed - sequence.num_known  # steps in flight sample those before it
            room = min(budget, sequence.horizon - sequence.num_computed)
            end = min(start + room, _num_forcible(sequence, constraint))
            tokens = array("i", islice(constraint.certain, start, end))
            if tokens:
                step.force(row, tokens)
                sequence.num_computed += len(tokens)
                budget -= len(tokens)

    def after_admission(self, step: ScheduledStep) -> None:
        """Note the rows that sample under a mask."""
        for row, sequence in enumerate(step.rows):
            if sequence.constraint is None or (sequence.num_left > 0 and not step.claimed.get(row)):
                continue
            num_ahead = sequence.num_computed - sequence.num_known
            if sequence.constraint.binds(num_ahead):
                step.masked.append(row)

    def masks(self, step: ScheduledStep) -> MaskFrame:
        """The masks of a step that has masked rows, once all tokens before it are known."""
        frame = self._constraints.frame(step)
        for row in step.masked:
            if not step.rows[row].has_ended and step.rows[row] not in step.dropped:
                self._settle(step.rows[row])
        step.masked = []
        return frame

    # --- results ----------------------------------------------------------------------------------------------------

    def before_results(self, step: ScheduledStep, result: StepResult) -> None:
        self.begin_time()

    def begin_time(self) -> None:
        """Give the grammars a step's time again."""
        self._constraints.begin_step(self._counters.forward_time)

    def take(self, sequence: Sequence, token: int, forced: "array[int] | None") -> None:
        """Append the sampled token and, before it, the tokens that the grammar forced."""
        num_before = len(sequence.output)
        self.follow(sequence, array("i", (*(forced or ()), token)))
        tokens = sequence.output[num_before:]  # without those after an end
        self._publisher.add_tokens(sequence, tokens)
        self._counters.generated_tokens += len(tokens)

    def follow(self, sequence: Sequence, tokens: "array[int]") -> None:
        """Take the next tokens, after which the sequence may have ended, be held, or be free."""
        sequence.output.extend(tokens)
        sequence.num_known += len(tokens)
        if (ended := end_at(sequence, tokens[-1])) is not None:
            self.end(sequence, ended)
            return
        self._constraints.follow(sequence, tokens)
        self._settle(sequence)

    def waits(self, sequence: Sequence) -> bool:
        constraint = sequence.constraint
        if constraint is None or not constraint.is_remote:
            return False
        return constraint.is_awaited or sequence.num_computed >= sequence.num_known

    def give_way(self, sequence: Sequence) -> None:
        if sequence.constraint is not None and sequence.constraint.is_awaited:
            sequence.is_held = True
        else:
            self._plain.give_way(sequence)

    def end(self, sequence: Sequence, ended: SequenceEnded) -> None:
        self._constraints.drop(sequence)
        self.members.discard(sequence)
        self._plain.end(sequence, ended)

    def reported(self) -> Iterator[Sequence]:
        """Sequences that were held until the follower reported on them, and have not ended."""
        for sequence in self._constraints.reported():
            was_held, sequence.is_held = sequence.is_held, False
            self._settle(sequence)
            if was_held and not sequence.has_ended:
                yield sequence

    def _settle(self, sequence: Sequence) -> None:
        """Act on the state of its grammar: over, still awaited, failed, or allowing no further token."""
        constraint = sequence.constraint
        if sequence.decoding is not self:
            return  # it became free earlier
        if constraint is None:
            self._set_free(sequence)
            sequence.free_decoding.resume(sequence)
        elif constraint.is_awaited:
            self._hold(sequence)
        elif constraint.error is not None:
            self._fail(sequence, constraint.error)
        elif allows_nothing(sequence, constraint, sequence.num_known):
            self.end(sequence, SequenceEnded(sequence.id, "stop"))  # without an end token

    def _set_free(self, sequence: Sequence) -> None:
        sequence.guide = None
        sequence.decoding = sequence.free_decoding
        self.members.discard(sequence)

    def _fail(self, sequence: Sequence, error: str) -> None:
        """End a sequence whose grammar failed, or continue without it if the grammar was a call's."""
        if sequence.guide is None or not sequence.guide.is_call:
            self.end(sequence, refused(sequence, error))
            return
        self._give_up(sequence, error)
        if self._planned(sequence):  # its planned rows may have forced tokens
            self._restart(sequence)

    def _give_up(self, sequence: Sequence, why: str) -> None:
        """Free a sequence whose answer needs no grammar from here on."""
        _LOG.warning("A call is not held to its tool's schema: %s", why)
        self._constraints.drop(sequence)
        sequence.free_decoding = self._plain
        self._set_free(sequence)

    def _hold(self, sequence: Sequence) -> None:
        """Wait for its mask. It keeps its slot and blocks if no step in flight has a row of it, and the workers have no
        further tokens of it."""
        has_more = sequence.num_claimed or sequence.num_computed >= sequence.num_known
        if not sequence.is_running or has_more or self._planned(sequence):
            self._withdraw(sequence)
            sequence.is_held = True

    def _restart(self, sequence: Sequence) -> None:
        """Compute it again from its known tokens, unless it is just about to compute the last of them."""
        is_next = sequence.is_running and sequence.num_computed < sequence.num_known
        if is_next and not sequence.is_held and not self._planned(sequence):
            return
        self._withdraw(sequence)
        if not sequence.is_held:
            self._waiting.push(sequence)

    def _planned(self, sequence: Sequence) -> list[ScheduledStep]:
        return [step for step in self._in_flight if sequence in step.rows]

    def _withdraw(self, sequence: Sequence) -> None:
        """Drop its rows in flight, and remove it from its slot or the queue."""
        for step in self._planned(sequence):
            step.dropped.add(sequence)
        if sequence.is_running:
            self._running.leave(sequence, sequence.num_findable_tokens)
        elif sequence.is_waiting:
            self._waiting.leave(sequence)
        sequence.num_computed = 0
        sequence.was_preempted = sequence.has_news = True


def _num_forcible(sequence: Sequence, constraint: Constraint | RemoteConstraint) -> int:
    """How many of its certain tokens may be forced. The row samples after these, so it is left to sample a token
    that ends the answer, and the last certain token if no token at all may follow."""
    num_certain = len(constraint.certain)
    may_end = sequence.endings and sequence.num_known + num_certain >= sequence.request.min_total
    most = num_certain - (constraint.completes and not may_end)
    return next((index for index, token in enumerate(constraint.certain) if token in sequence.endings), most)
