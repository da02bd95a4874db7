"""Applies grammars to planned rows: which tokens they may sample, which sequences end, which results are dropped.

A guided row is planned ahead like any other. Its mask depends on the tokens of the steps before, so a step's masks go
to the workers once it has become the oldest in flight. The workers compute the forward pass meanwhile and wait for
masks only before they sample. Certain tokens that no step in flight brings are sent as forced ones, as far as the
sequence's blocks and the step's budget reach; the mask after them then allows just one token.

So it is assumed that a mask will be there in time. When a grammar has become too expensive for that and moves to the
follower's process (`grammar/remote.py`), the sequence's planned rows are dropped: it gives up its slot and blocks and
comes back with its next mask. From then on it keeps both and is planned only with its mask.
"""

from array import array
from collections import deque
from itertools import islice

from ...protocol.messages import MaskFrame, SequenceEnded
from ..admission.queue import WaitingQueue
from ..counters import Counters
from ..grammar.constraint import Busy, Constraint
from ..grammar.constraints import Constraints
from ..grammar.remote import RemoteConstraint
from ..publisher import Publisher
from ..request import Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .strategy import ActiveDecoding, PlainDecoding, end_at


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
        if not self.members:
            self.before_results()  # whose time was not counted without members
        self.members.add(sequence)
        return self._constraints.begin(sequence)

    # --- planning ---------------------------------------------------------------------------------------------------

    def after_decodes(self, step: ScheduledStep, budget: int) -> None:
        """Add the certain tokens to the step's rows, each of which computes one token so far."""
        for row, sequence in enumerate(step.rows):
            constraint = sequence.constraint
            if constraint is None or not constraint.may_force or not budget:
                continue
            start = sequence.num_computed - sequence.num_known  # steps in flight bring those before it
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
            if sequence.constraint is None or sequence.num_left > 0:
                continue
            num_ahead = sequence.num_computed - sequence.num_known
            if sequence.constraint.binds(num_ahead):
                step.masked.append(row)

    def masks(self, step: ScheduledStep) -> MaskFrame:
        """The masks of a step that has masked rows, once all tokens before it are known."""
        frame = self._constraints.frame(step)
        for row in step.masked:
            if not step.rows[row].has_ended:
                self._settle(step.rows[row])
        step.masked = []
        return frame

    # --- results ----------------------------------------------------------------------------------------------------

    def before_results(self) -> None:
        self._constraints.begin_step(self._counters.forward_time)

    def take(self, step: ScheduledStep, sequence: Sequence, token: int) -> None:
        """Append the sampled token and, before it, the tokens that the grammar forced."""
        tokens = step.forced.get(sequence, array("i")) + array("i", (token,))
        num_before = sequence.num_known
        sequence.output.extend(tokens)
        sequence.num_known += len(tokens)
        ended = end_at(sequence, token)
        tokens = tokens[: sequence.num_known - num_before]
        self._publisher.add_tokens(sequence, tokens)
        self._counters.generated_tokens += len(tokens)
        if ended is not None:
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
        self._constraints.forget(sequence)
        self.members.discard(sequence)
        self._plain.end(sequence, ended)

    def let_in_heard(self) -> None:
        """Let sequences continue whose report from the follower has come."""
        for sequence in self._constraints.heard():
            self._settle(sequence)
            if sequence.is_held and not sequence.has_ended:
                sequence.is_held = False
                self._waiting.push(sequence)

    def _settle(self, sequence: Sequence) -> None:
        """Act on the state of its grammar: over, still awaited, failed, or allowing nothing more."""
        constraint = sequence.constraint
        if constraint is None:
            sequence.decoding = self._plain  # its grammar is over
            self.members.discard(sequence)
        elif constraint.is_awaited:
            self._hold(sequence)
        elif constraint.error is not None:
            self.end(sequence, SequenceEnded(sequence.id, "error", error_code=400, error_msg=constraint.error))
        elif constraint.is_complete and (not sequence.endings or sequence.num_known < sequence.request.min_total):
            self.end(sequence, SequenceEnded(sequence.id, "stop"))  # without an end token

    def _hold(self, sequence: Sequence) -> None:
        """Wait for its mask. If no step in flight has a row of it, it keeps its slot and blocks."""
        planned = [step for step in self._in_flight if sequence in step.rows]
        if sequence.is_running and not planned:
            return
        for step in planned:
            step.dropped.add(sequence)
        if sequence.is_running:
            self._running.leave(sequence, sequence.num_findable_tokens)
        elif sequence.is_waiting:
            self._waiting.leave(sequence)
        sequence.num_computed = 0
        sequence.was_preempted = sequence.has_news = sequence.is_held = True


def _num_forcible(sequence: Sequence, constraint: Constraint | RemoteConstraint) -> int:
    """How many of its certain tokens may be forced. The row samples after them, so a token that ends the answer is left
    for it to sample, and so is the last certain token if nothing at all may follow."""
    num_certain = len(constraint.certain)
    may_end = sequence.endings and sequence.num_known + num_certain >= sequence.request.min_total
    most = num_certain - (constraint.completes and not may_end)
    return next((place for place, token in enumerate(constraint.certain) if token in sequence.endings), most)
