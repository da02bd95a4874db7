"""Applies grammars to planned rows: which tokens they may sample, which sequences end, which results are dropped.

A row is planned ahead on the assumption that its mask will be there in time. When a grammar has become too expensive
for that and moves to the follower's process (`grammar/remote.py`), the sequence's planned rows are dropped: it gives up
its slot and blocks and comes back with its next mask. From then on it keeps both and is planned only with its mask.
"""

from array import array
from collections import deque

from ...protocol.messages import MaskFrame, SequenceEnded
from ..admission.queue import WaitingQueue
from ..grammar.constraints import Constraints
from ..publisher import Publisher
from ..request import Sequence
from ..running import RunningBatch
from ..stats import Counters
from ..step import ScheduledStep
from .strategy import DecodingStrategy, PlainDecoding, end_at


class GuidedDecoding(DecodingStrategy):
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
        self._constraints = constraints
        self._plain = plain
        self._publisher = publisher
        self._counters = counters
        self._running = running
        self._waiting = waiting
        self._in_flight = in_flight

    def take(self, step: ScheduledStep, sequence: Sequence, token: int) -> None:
        """Append the sampled token and, before it, the tokens that the grammar forced."""
        tokens = step.forced.get(sequence, array("i")) + array("i", (token,))
        self._publisher.run(sequence, tokens)
        self._counters.generated_tokens += len(tokens)
        sequence.output.extend(tokens)
        sequence.num_known += len(tokens)
        if (ended := end_at(sequence, token)) is not None:
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
        self._plain.end(sequence, ended)

    def take_mask(self) -> MaskFrame | None:
        """The masks of the oldest step in flight, if it has masked rows and they aren't sent yet."""
        if not self._in_flight or not self._in_flight[0].masked:
            return None
        step = self._in_flight[0]
        frame = self._constraints.frame(step)
        for row in step.masked:
            if not step.rows[row].has_ended:
                self._settle(step.rows[row])
        step.masked = []
        return frame

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
