"""Carries out what grammars decide of planned rows: which tokens they may sample, which end, which don't count.

A row is planned ahead in the hope that its mask is there in time. Where a grammar has become too dear for that, and its
sequence is followed elsewhere (`grammar/remote.py`), what is planned of it is dropped: it gives up slot and blocks, and
comes back when it is known what it may say. From then on it keeps both, and isn't planned before that is known.
"""

from array import array
from collections import deque

from ..protocol.messages import MaskFrame, SequenceEnded
from .decoding import DecodingStrategy, PlainDecoding, end_at
from .grammar.constraints import Constraints
from .publisher import Publisher
from .queue import WaitingQueue
from .request import Sequence
from .running import RunningBatch
from .stats import Counters
from .step import ScheduledStep


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
        """Which tokens the oldest step in flight may sample, once that is known and if it isn't all."""
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
        """Sequences that are followed elsewhere may go on."""
        for sequence in self._constraints.heard():
            self._settle(sequence)
            if sequence.is_held and not sequence.has_ended:
                sequence.is_held = False
                self._waiting.push(sequence)

    def _settle(self, sequence: Sequence) -> None:
        """Its grammar may leave nothing to say, or have become too much to follow, or not be known yet."""
        constraint = sequence.constraint
        if constraint is None:
            sequence.decoding = self._plain  # it is free from here on
        elif constraint.is_awaited:
            self._hold(sequence)
        elif constraint.error is not None:
            self.end(sequence, SequenceEnded(sequence.id, "error", error_code=400, error_msg=constraint.error))
        elif constraint.is_complete and (not sequence.endings or sequence.num_known < sequence.request.min_total):
            self.end(sequence, SequenceEnded(sequence.id, "stop"))  # no token says so

    def _hold(self, sequence: Sequence) -> None:
        """Nobody knows yet what it may say next. Where nothing of it is planned it may keep what it has."""
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
