"""Speculation: gives decoding rows room for drafts, and takes back the room that they didn't use.

The workers propose the drafts when they launch a step (`worker/drafting/`), so here a drafting row is a row with an
upper bound: `num_computed` counts all the room it was given, and `num_doubtful` how much of that is in flight. A result
says how many tokens the row has drawn, and the difference is taken back. Blocks are given up to the bound. So a
sequence with drafts is planned ahead like any other; only one that may have reached its last token waits for its
results.

Which tokens are drawn never depends on the room. A sequence that must not be planned by a bound gets none: a beam, one
with claimed tokens, one whose grammar another process follows, and one whose grammar forces tokens in this step.
"""

from array import array
from collections import Counter
from collections.abc import Iterable

from ...protocol.layer_groups import SpareStates
from ...protocol.messages import StepResult
from ...protocol.wire import column, values
from ..admission.limits import DraftLimits, Limits
from ..counters import Counters
from ..grammar.constraint import Constraint
from ..grammar.remote import RemoteConstraint
from ..memory.cache import Cache
from ..memory.preemption import Preemption
from ..publisher import Publisher
from ..request import NO_SLOT, Sequence
from ..running import RunningBatch
from ..step import ScheduledStep
from .participant import Participant

_STATES = 8  # for the tokens of a row with drafts, where layers keep states
_PATIENCE = 16
_OPEN_TOKENS = 4  # since a grammar has forced some: within a longer text, say
_SHARE_BESIDE_PROMPTS = 16  # of a step's tokens one in so many is for drafts, however many prompts there are


class Speculation(Participant):
    def __init__(
        self,
        limits: Limits,
        draft_limits: DraftLimits,
        cache: Cache,
        counters: Counters,
        running: RunningBatch,
        publisher: Publisher,
        preemption: Preemption,
    ) -> None:
        # What isn't split may need all of a step: such prompts, and the rows of a picture that see one another.
        self._are_prompts_split = limits.enable_chunked_prefill and not limits.encoder.has_whole_spans
        self._most_tokens = limits.max_num_batched_tokens
        self._draft_limits = draft_limits
        self._num_fruitless = 0  # steps with room since one had drafts
        self._cache = cache
        self._counters = counters
        self._running = running
        self._publisher = publisher
        self._preemption = preemption

    def after_decodes(self, step: ScheduledStep, budget: int) -> None:
        """Keep a share of the step from prompts. It is small: prompts get the tokens that they need before drafts do.

        None is kept if prompts can't be split, or if it would be too little for each row.
        """
        share = budget // _SHARE_BESIDE_PROMPTS
        if self._are_prompts_split and self._room_of_each(step, len(step.rows), share):
            step.num_reserved = share

    def after_admission(self, step: ScheduledStep) -> None:
        """Give what is left of the step to its decoding rows as room. They share it evenly, for what each will find
        isn't known yet."""
        each = self._room_of_each(step, step.num_decodes, self._most_tokens - sum(step.num_tokens))
        if not each:
            return
        for row, sequence in enumerate(step.rows[: step.num_decodes]):
            if _may_draft(sequence, step) and (room := self._room(sequence, step, row, each)):
                step.rooms[row] = room
                sequence.num_computed += room
                sequence.num_doubtful += room

    def _room_of_each(self, step: ScheduledStep, num_rows: int, left: int) -> int:
        """The room of each row if they share so many tokens; 0 if drafts rest in this step."""
        limits = self._draft_limits
        if not num_rows or (limits.rests and self._num_fruitless > _PATIENCE and step.number % 2):
            return 0
        each = min(limits.each, min(limits.all, left) // num_rows)
        return each if each >= limits.least else 0

    def _room(self, sequence: Sequence, step: ScheduledStep, row: int, most: int) -> int:
        """The room for a row, for which its tables get what they lack if that is free."""
        if self._cache.keeps_states:
            most = min(most, self._spare_states(sequence, step))
        if (end := sequence.num_computed + most) <= sequence.horizon:
            return most
        end = min(end, self._cache.bound(sequence))
        if end > sequence.horizon and self._cache.has_room(sequence, end):
            step.add_to(row, self._cache.extend(sequence, end))
        return max(0, min(end, sequence.horizon) - sequence.num_computed)

    def _spare_states(self, sequence: Sequence, step: ScheduledStep) -> int:
        """How many drafts a sequence has states to go back to. Free slots keep a state each for who comes next."""
        num_drafts, given = self._cache.spare_states(sequence, _STATES, self._running.slots.num_free)
        step.spares += [SpareStates(sequence.slot, group, column(states)) for group, states in given]
        return num_drafts

    def before_results(self, step: ScheduledStep, result: StepResult) -> None:
        """Take back the room that rows didn't use, before their tokens are taken."""
        if not step.rooms:
            return
        counts, rows, dropped = values(result.num_sampled), step.rows, step.dropped
        for row, room in step.rooms.items():
            sequence, count = rows[row], counts[row]
            if count and sequence.slot != NO_SLOT and sequence not in dropped:
                sequence.num_computed -= room + 1 - count
                sequence.num_doubtful -= room
            if count > 1:
                step.several.add(row)
        self._num_fruitless = 0 if result.num_drafted else self._num_fruitless + 1
        if result.num_drafted:
            self._count_drafts(step, values(result.num_drafted))

    def _count_drafts(self, step: ScheduledStep, counts: "array[int]") -> None:
        for row in step.rooms:
            if counts[row]:
                step.drafted.add(row)
                step.rows[row].num_draft_tokens += counts[row]
                self._counters.drafts += 1
                self._counters.draft_tokens += counts[row]
                self._publisher.note_drafts(step.rows[row])

    def note_taken(self, sequence: Sequence, num_drawn: int, num_taken: int) -> None:
        """Count what was taken of a row's tokens."""
        num_accepted = min(num_taken, num_drawn - 1)
        sequence.num_accepted_tokens += num_accepted
        self._counters.note_accepted(num_accepted)
        self._counters.generated_tokens += num_taken

    def computes_again(self, step: ScheduledStep, row: int) -> bool:
        """Compute a sequence again without drafts if its row had some when it failed. A draft that isn't accepted may
        be the reason: attention gives it a weight of zero, and zero times NaN is NaN."""
        sequence = step.rows[row]
        if row not in step.drafted:
            return False
        sequence.may_draft = False
        self._preemption.restart(sequence, is_findable=False)
        return True

    def check(self, running: Iterable[Sequence], in_flight: Iterable[ScheduledStep]) -> None:
        """Raise unless each sequence's doubtful tokens are the room that it has in flight."""
        rooms: Counter[Sequence] = Counter()
        for step in in_flight:
            for row, room in step.rooms.items():
                rooms[step.rows[row]] += room if step.rows[row] not in step.dropped else 0
        for sequence in running:
            doubtful, given = sequence.num_doubtful, rooms[sequence]
            if doubtful != given:
                raise RuntimeError(f"Sequence {sequence.id} has {doubtful} doubtful tokens, and {given} in flight.")


def _may_draft(sequence: Sequence, step: ScheduledStep) -> bool:
    if not sequence.may_draft or sequence.claim is not None or sequence.decoding.num_candidates(sequence):
        return False
    if (constraint := sequence.constraint) is None:
        return True
    return sequence not in step.forced and _is_loose(sequence, constraint)


def _is_loose(sequence: Sequence, constraint: Constraint | RemoteConstraint) -> bool:
    """Whether a grammar leaves the next tokens open. A row with room in flight can't be forced, and forced tokens are
    surer than drafts, so there is none where a grammar has forced tokens lately."""
    if constraint.is_remote:
        return False
    if constraint.may_force and constraint.certain:
        sequence.last_forced = sequence.num_known
    return not constraint.may_force or sequence.num_known >= sequence.last_forced + _OPEN_TOKENS
