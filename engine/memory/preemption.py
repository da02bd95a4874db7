"""Preemption by recomputation: chooses the running sequence that gives up its slot and blocks, and when.

There are three reasons: a sequence needs a block and none is free, a client has waited too long with nothing running,
or all running sequences wait for something that only a queued sequence can provide. A preempted sequence's tokens in
flight still count; the rest is recomputed, or found again under its blocks' keys.
"""

from collections import deque

from ..admission.admission import Admission
from ..admission.queue import WaitingQueue, victim
from ..counters import Counters
from ..request import Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .cache import Cache


class Preemption:
    def __init__(
        self,
        admission: Admission,
        waiting: WaitingQueue,
        running: RunningBatch,
        cache: Cache,
        counters: Counters,
        in_flight: deque[ScheduledStep],
    ) -> None:
        self._admission = admission
        self._waiting = waiting
        self._running = running
        self._cache = cache
        self._counters = counters
        self._in_flight = in_flight

    def preempt(self, sequence: Sequence) -> None:
        """Take its slot and blocks away; it recomputes later, and its tokens in flight still count."""
        self._running.leave(sequence, sequence.num_findable_tokens)
        sequence.num_computed = 0
        sequence.was_preempted = True
        sequence.untold_preemptions += 1
        sequence.has_news = True
        self._counters.preemptions += 1
        sequence.decoding.give_way(sequence)

    def restart(self, sequence: Sequence, is_findable: bool = True) -> None:
        """Compute it again from its known tokens, since workers have others in its slot; none in flight counts.
        `is_findable`: what was computed of it may be found."""
        for step in self._in_flight:
            if sequence in step.rows:
                step.dropped.add(sequence)
        if sequence.is_waiting or sequence.is_held:
            return
        if sequence.is_running:  # it has left if its last token was in flight
            self._running.leave(sequence, sequence.num_findable_tokens if is_findable else 0)
        sequence.num_computed = 0
        sequence.was_preempted = sequence.has_news = True
        sequence.decoding.give_way(sequence)

    def relieve(self, overdue: Sequence) -> None:
        """Preempt a sequence of the client with the most for one that has waited long with nothing running."""
        if self._admission.is_in_flight(overdue):
            return
        if (loser := self._admission.to_give_way(overdue)) is not None:
            self._waiting.end_turn(loser.client)
            self.preempt(loser)
            self._running.settle()

    def unblock(self) -> bool:
        """If every running sequence is waiting for its siblings, for its grammar, or for blocks that the others hold,
        preempt the youngest."""
        idle = [sequence for sequence in self._running.decoding if sequence.waits_for_host]
        without_blocks = [sequence for sequence in self._running.prefilling if sequence.is_running]
        stuck = [*idle, *without_blocks]
        if not stuck or not (self._waiting or (without_blocks and len(stuck) > 1)):
            return False
        self.preempt(victim(stuck))
        self._running.settle()
        return True

    def make_room(self, sequence: Sequence, end: int) -> bool:
        """Preempt others until the sequence can be computed up to this position; False if it was preempted itself."""
        while not self._cache.has_room(sequence, end):
            loser = self._running.first_to_give_way()
            self.preempt(loser)
            if loser is sequence:
                return False
        return True
