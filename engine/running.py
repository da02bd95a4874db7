"""The running batch: the sequences that hold a slot and blocks, in the order of their rows.

Those that still have known tokens to compute are prefilling; the others are decoding. Both lists may contain sequences
that have left, until `settle` is called.
"""

from .admission.queue import victim
from .media.encoder import Encoder
from .memory.cache import Additions, Cache, Match, together
from .request import NO_SLOT, Sequence
from .step import ScheduledStep

_MOST_MASKED = 64  # drafts of a row under a grammar: their masks are computed while the workers compute the row


class SlotPool:
    """The workers' slots: which are free, and which were given back since the last plan.

    A slot may be taken again in the plan that frees it, because workers apply `freed` before `new`."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._freed: list[int] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_taken(self) -> int:
        return self.num_slots - len(self._free)

    def take(self) -> int:
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)
        self._freed.append(slot)

    def take_freed(self) -> list[int]:
        """The slots given back since the last plan, for the next one."""
        freed, self._freed = self._freed, []
        return freed


class RunningBatch:
    def __init__(self, cache: Cache, num_slots: int, encoder: Encoder) -> None:
        self.cache = cache
        self.encoder = encoder
        self.slots = SlotPool(num_slots)
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self._is_settled = True
        self._advanced: list[Sequence] = []  # sequences with chunks in the previous step

    def __len__(self) -> int:
        return self.slots.num_taken

    @property
    def has_free_slot(self) -> bool:
        return self.slots.num_free > 0

    def begin_step(self, num_waiting: int) -> None:
        """Begin planning a step. What no future token reads is free for it, even if the previous step reads it."""
        self.cache.begin_step(min(num_waiting, self.slots.num_free))
        for sequence in self._advanced:
            if sequence.is_running:
                self.cache.give_back(sequence)
        self._advanced.clear()

    def enter(self, sequence: Sequence, match: Match) -> Additions:
        """Give a sequence a slot, and tables that begin with the match. Returns their content."""
        self._take_slot(sequence)
        additions = self.cache.admit(sequence, match)
        self.prefilling.append(sequence)
        return additions

    def join(self, sequence: Sequence) -> None:
        """Give a slot to a forked sequence, which has its blocks and as many computed tokens as its parent."""
        self._take_slot(sequence)
        self.decoding.append(sequence)

    def _take_slot(self, sequence: Sequence) -> None:
        sequence.slot = self.slots.take()
        sequence.request.client.take_slot()

    def advance(self, sequence: Sequence, step: ScheduledStep, budget: int, entered: Additions = ()) -> int:
        """Plan the next chunk of a prefilling sequence, which may just have `entered`, with that content of its
        tables. Returns its number of tokens, 0 if no block is free for it."""
        start, media = sequence.num_computed, sequence.media
        if sequence.num_claimed and sequence.constraint is not None:
            budget = min(budget, max(0, sequence.first_claimed - 1 - start) + _MOST_MASKED)
        num_tokens = max(0, self.reach(sequence, start + min(budget, sequence.num_left)) - start)
        if not num_tokens:
            return 0
        additions = self.cache.extend(sequence, start + num_tokens)
        self.advance_to(sequence, start + num_tokens)
        step.add(sequence, num_tokens, together(entered, additions))
        if sequence.claim is not None:
            first = max(start, sequence.first_claimed - 1)  # the first position that samples
            step.claimed[len(step.rows) - 1] = max(0, sequence.num_computed - first)
        if media is not None:
            step.media += self.encoder.rows_of(sequence, media, start, sequence.num_computed, len(step.rows) - 1)
            self.encoder.release_up_to(sequence, media, sequence.num_computed, step)
        return num_tokens

    def reach(self, sequence: Sequence, end: int) -> int:
        """The position up to which a prefilling sequence can be computed with the free blocks, `end` at most."""
        end = self.cache.reach(sequence, end)
        return end if sequence.media is None else sequence.media.whole_end(end)

    def advance_to(self, sequence: Sequence, end: int) -> None:
        """Count a prefilling sequence as computed up to this position, for which it has blocks."""
        sequence.num_computed = end
        self.cache.publish(sequence, sequence.num_findable_tokens)
        self._advanced.append(sequence)
        self._is_settled = self._is_settled and sequence.num_left > 0

    def at_horizon(self) -> list[Sequence]:
        """The decoding sequences whose tables are full. One whose last token is in flight leaves instead: it no
        longer needs its slot and blocks."""
        at_horizon = [
            sequence
            for sequence in self.decoding
            if sequence.num_computed == sequence.horizon and not sequence.waits_for_host
        ]
        for sequence in at_horizon:
            if sequence.num_tokens - sequence.num_doubtful >= sequence.max_total:
                self.leave(sequence, sequence.num_findable_tokens)
            else:
                self.cache.publish(sequence, sequence.num_findable_tokens)
                self.cache.give_back(sequence)
        return at_horizon

    def leave(self, sequence: Sequence, num_findable_tokens: int) -> None:
        """Take back slot and blocks at once: plans in flight still use them before any later plan can."""
        self.cache.release(sequence, num_findable_tokens)
        if sequence.media is not None:
            self.encoder.release(sequence)
        self.slots.give_back(sequence.slot)
        sequence.num_begun = sequence.num_doubtful = 0
        sequence.slot = NO_SLOT
        sequence.request.client.leave_slot()
        self._is_settled = False

    def first_to_give_way(self) -> Sequence:
        return victim(sequence for sequence in self.decoding + self.prefilling if sequence.is_running)

    def check(self, sequences: list[Sequence]) -> None:
        """Raise unless exactly these run, each with a slot of its own."""
        listed = [sequence for sequence in self.prefilling + self.decoding if sequence.is_running]
        if sorted(each.id for each in listed) != sorted(each.id for each in sequences):
            raise RuntimeError("The running sequences are not those that have slots.")
        slots = [sequence.slot for sequence in listed]
        if len(set(slots)) != len(slots) or self.slots.num_taken != len(slots):
            raise RuntimeError(f"{self.slots.num_taken} slots are taken, by {slots}.")

    def settle(self) -> None:
        """Drop sequences that have left, and move those without known tokens to compute to the decoding ones.

        This must happen before a result arrives: with another known token, they would seem to be prefilling again.
        """
        if self._is_settled:
            return
        prefilling = [sequence for sequence in self.prefilling if sequence.is_running]
        self.decoding = [sequence for sequence in self.decoding if sequence.is_running]
        self.decoding += [sequence for sequence in prefilling if sequence.num_left == 0]
        self.prefilling = [sequence for sequence in prefilling if sequence.num_left]
        self._is_settled = True
