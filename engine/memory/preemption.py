"""Which running sequence gives up its slot and its blocks, and when: preemption by recomputation.

There are three reasons: a sequence needs a block and none is free, a client has waited too long with nothing running,
or all running sequences wait for something that only a sequence in the queue can bring. A preempted sequence's tokens
in flight still count; the rest is recomputed, or found again under its blocks' keys.
"""

from collections.abc import Sequence as Many

from ..admission.admission import Admission
from ..admission.queue import WaitingQueue, victim
from ..counters import Counters
from ..request import Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .cache import Additions, Cache


class Preemption:
    def __init__(
        self, admission: Admission, waiting: WaitingQueue, running: RunningBatch, cache: Cache, counters: Counters
    ) -> None:
        self._admission = admission
        self._waiting = waiting
        self._running = running
        self._cache = cache
        self._counters = counters

    def preempt(self, sequence: Sequence) -> None:
        """Take its slot and blocks away; it recomputes later, and its tokens in flight still count."""
        self._running.leave(sequence, sequence.num_findable_tokens)
        sequence.num_computed = 0
        sequence.was_preempted = True
        sequence.untold_preemptions += 1
        sequence.has_news = True
        self._counters.preemptions += 1
        sequence.decoding.give_way(sequence)

    def relieve_overdue(self, step: ScheduledStep) -> None:
        """If a client has waited long with nothing running, preempt a sequence of the client with the most."""
        sequence = self._admission.overdue(step)
        if sequence is None or self._admission.is_in_flight(sequence):
            return
        if (loser := self._admission.to_give_way(sequence)) is not None:
            self._waiting.end_turn(loser.client)
            self.preempt(loser)
            self._running.settle()

    def unblock(self, idle: Many[Sequence]) -> bool:
        """If every running sequence is waiting for its siblings, for its grammar, or for blocks that the others hold,
        preempt the youngest."""
        without_blocks = [sequence for sequence in self._running.prefilling if sequence.is_running]
        stuck = [*idle, *without_blocks]
        if not stuck or not (self._waiting or (without_blocks and len(stuck) > 1)):
            return False
        self.preempt(victim(stuck))
        self._running.settle()
        return True

    def make_room(self) -> dict[Sequence, Additions]:
        """Give blocks to each sequence whose tables are full, preempting others if need be.

        They are returned by sequence, not by slot: one that got its blocks may be preempted for the next, and a beam
        take its slot.
        """
        additions: dict[Sequence, Additions] = {}
        at_horizon = [
            sequence
            for sequence in self._running.decoding
            if sequence.num_computed == sequence.horizon and not sequence.waits_for_host
        ]
        for sequence in at_horizon:
            if sequence.num_tokens >= sequence.max_total:
                # Its last token is in flight: it no longer needs its slot and blocks.
                self._running.leave(sequence, sequence.num_findable_tokens)
            else:
                self._cache.publish(sequence, sequence.num_findable_tokens)
                self._cache.give_back(sequence)
        for sequence in at_horizon:
            if not sequence.is_running:  # it has left, or was preempted for one before it
                continue
            if self._cache.has_outgrown_its_stretch(sequence):
                self.preempt(sequence)
            elif sequence.num_computed >= self._cache.capacity:
                self._admission.end_outgrown(sequence)
            else:
                self._grow(sequence, additions)
        self._running.settle()
        return additions

    def _grow(self, sequence: Sequence, additions: dict[Sequence, Additions]) -> None:
        end = sequence.num_computed + 1
        while not self._cache.has_room(sequence, end):
            loser = self._running.first_to_give_way()
            self.preempt(loser)
            if loser is sequence:
                return
        if grown := self._cache.extend(sequence, end):
            additions[sequence] = grown
