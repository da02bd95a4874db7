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
from .cache import Cache


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
        """If every running sequence is waiting for its siblings, or for its grammar, preempt the youngest."""
        if not idle or not self._waiting:
            return False
        self.preempt(victim(idle))
        return True

    def make_room(self) -> dict[Sequence, int]:
        """Give a block to each sequence whose table is full, preempting others if need be.

        The blocks are returned by sequence, not by slot: one that got its block may be preempted for the next, and a
        beam take its slot.
        """
        new_blocks: dict[Sequence, int] = {}
        at_horizon = [
            sequence
            for sequence in self._running.decoding
            if sequence.num_computed == sequence.horizon and not sequence.waits_for_host
        ]
        for sequence in at_horizon:
            if sequence.num_tokens >= sequence.max_total:
                # Its last token is in flight: it no longer needs its slot and blocks.
                self._running.leave(sequence, sequence.num_findable_tokens)
        for sequence in at_horizon:
            if not sequence.is_running:  # it has left, or was preempted for one before it
                continue
            if self._cache.has_outgrown_its_stretch(sequence):
                self.preempt(sequence)
            elif len(sequence.block_ids) == self._cache.num_blocks:
                self._admission.end_outgrown(sequence)
            else:
                self._grow(sequence, new_blocks)
        self._running.settle()
        return new_blocks

    def _grow(self, sequence: Sequence, new_blocks: dict[Sequence, int]) -> None:
        self._cache.publish(sequence, sequence.num_findable_tokens)
        while not self._cache.num_free:
            loser = self._running.first_to_give_way()
            self.preempt(loser)
            if loser is sequence:
                return
        new_blocks[sequence] = self._cache.grow(sequence)
