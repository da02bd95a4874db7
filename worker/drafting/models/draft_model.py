"""Drafts from a smaller model with the same vocabulary, which reads what sequences say and goes on from there.

Its layers have groups of their own in the tree's memory (docs/layer-groups.md): the engine gives them blocks, finds
prefixes and moves blocks without knowing of it. It has a slot table of its own and computes steps that are planned
here. It draws its drafts with the seed and the counter of the draw that will check them, so that two models that
agree about a token's chances mostly draw the same one.

It follows at a distance. What a step computes of a prompt it computes when the next one is launched, and an answer's
tokens when its drafts are wanted, a block of them is complete, or their sequence leaves. Others may find such a block
before: then it guesses from keys that aren't there yet, which costs a draft and never an answer.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy
from msgspec.structs import replace

from ....protocol.adapter_messages import NO_ADAPTER
from ....protocol.layer_groups import GroupChanges
from ....protocol.messages import NewSlot, StepPlan, StepResult
from ....protocol.parameters.sampling import SamplingParams
from ....protocol.wire import column, values
from ...steps.block_tables import BlockTables
from ...steps.drafts import StepDrafts
from ...steps.slots import SlotTable
from ...steps.step_rows import Ints
from ...steps.step_rows import column as read_column
from ..proposer import NOTHING, Guess, Look

# Where no number of drafts is given.
_DRAFTS = 8  # at most
_ACCEPTANCE = 0.7  # before any is known
_RATE = 0.03  # at which acceptance and times are learned


class Following(NamedTuple):
    """Whose sequences a model drafts for, and within which bounds."""

    table: SlotTable  # its own
    groups: Sequence[int]  # that the table has, by their numbers among the tree's
    followed: SlotTable  # the tree's
    context: int  # tokens that it reads
    most: int | None  # drafts a step; None: what pays


class DraftModel:
    name = "draft_model"

    def __init__(self, compute: Callable[[StepPlan], StepResult], following: Following) -> None:
        self._compute = compute
        self._table, self._groups, self._followed, self._context, self._most = following
        self._acceptance = _ACCEPTANCE  # the share of drafts that were right, of those whose turn came
        self._seconds: dict[str, float] = {}  # of a step, of the followed model and of this one
        self._guesses: dict[int, tuple[int, list[int]]] = {}  # by slot, since it was last settled: position and drafts

    def follow(self, plan: StepPlan) -> None:
        """Compute what the steps so far have left, then take in what this plan changes. The followed table is still
        that before the plan."""
        self._catch_up([slot for slot in values(plan.freed) if self._table.is_taken[slot]])
        self._take_in(plan)

    def launch(self, plan: StepPlan, drafts: StepDrafts | None) -> None:
        """Do nothing: what a step computes can be read later."""

    def learn(self, seconds: float) -> None:
        """Take in how long a step of the followed model took."""
        self._learn_time("followed", seconds)

    def _take_in(self, plan: StepPlan) -> None:
        freed = [slot for slot in values(plan.freed) if self._table.is_taken[slot]]
        if freed or plan.new:
            self._enter(freed, plan.new)
        self._append(read_column(plan.slots), plan.groups)
        for chunk in plan.layered:
            if chunk.first_layer == 0:
                self._append(numpy.array([chunk.slot]), chunk.groups)

    def enter(self, slot: int, new: NewSlot) -> None:
        """Do nothing: `follow` sees whole plans."""

    def leave(self, slot: int, tokens: numpy.ndarray) -> None:
        """Do nothing, likewise."""

    def guess(self, looks: list[Look]) -> list[Guess]:
        most = self._most or self._worth()
        rooms = {look.slot: room for look in looks if (room := self._room(look, most)) > 0}
        drafts = self._begun(list(rooms))
        slots = [slot for slot in rooms if len(drafts[slot]) < rooms[slot]]
        while slots:
            drawn = self._drawn(slots)
            for slot, token in drawn:
                drafts[slot].append(token)
            slots = [slot for slot, _ in drawn if len(drafts[slot]) < rooms[slot]]
        found = (drafts.get(look.slot, []) for look in looks)
        return [Guess(tokens, [1.0] * len(tokens)) if tokens else NOTHING for tokens in found]

    def _room(self, look: Look, most: int) -> int:
        if not self._table.is_taken[look.slot]:
            return 0
        return min(look.most, most, self._context - len(look.tokens))

    def _begun(self, slots: list[int]) -> dict[int, list[int]]:
        """Begin to draft for these slots; return the drafts that there are already."""
        drafts: dict[int, list[int]] = {slot: [] for slot in slots}
        for slot in slots:
            self._read(slot)
            self._guesses[slot] = int(self._table.num_tokens[slot]), drafts[slot]
        return drafts

    def _worth(self) -> int:
        """How many drafts a step give the most tokens in their time; one at least, to learn from."""
        if len(self._seconds) < 2:
            return 1
        cost = self._seconds["own"] / self._seconds["followed"]
        # With k drafts a step gives 1 + a + a² + … + aᵏ tokens, where a is the acceptance.
        tokens = accumulate(self._acceptance**number for number in range(_DRAFTS + 1))
        rates = [each / (1 + cost * number) for number, each in enumerate(tokens)]
        return max(1, rates.index(max(rates)))

    def _learn_time(self, name: str, seconds: float) -> None:
        before = self._seconds.get(name, seconds)
        self._seconds[name] = before + _RATE * (seconds - before)

    def _drawn(self, slots: list[int]) -> list[tuple[int, int]]:
        """Compute these slots' tokens, and return the next one of each that has any which the followed model knows."""
        counts = self._table.num_tokens[slots] - self._table.num_computed[slots]
        result = self._compute(self._plan(slots, counts))
        self._learn_time("own", result.forward_time)
        rows = (slot for slot, count in zip(slots, values(result.num_sampled)) if count)
        return [(slot, token) for slot, token in zip(rows, values(result.sampled)) if token < self._followed.vocab_size]

    def _catch_up(self, leaving: list[int]) -> None:
        """Compute what is behind by a block or more, and all that is left of sequences that leave."""
        for slot in list(self._guesses):
            self._settle(slot)
        behind = self._followed.num_computed - self._table.num_computed
        is_due = self._table.is_taken & (behind >= self._table.block_size)
        is_due[leaving] = behind[leaving] > 0
        if is_due.any():
            slots = numpy.flatnonzero(is_due).tolist()
            for slot in slots:
                self._read(slot)
            self._compute(self._plan(slots, behind[slots]))

    def _settle(self, slot: int) -> None:
        """Keep of what was computed of drafts what turned out right."""
        start, drafts = self._guesses.pop(slot)
        end = min(int(self._followed.num_tokens[slot]), start + len(drafts))
        came = self._followed.device.host_copy(self._followed.histories[slot, start:end])()
        is_wrong = came != drafts[: len(came)]
        right = int(is_wrong.argmax()) if is_wrong.any() else len(came)
        for place in range(min(right + 1, len(came))):
            self._acceptance += _RATE * ((place < right) - self._acceptance)
        # The last known token is computed again if need be, for what is drawn after it.
        last = self._followed.num_tokens[slot] - 1
        self._table.num_computed[slot] = min(self._table.num_computed[slot], start + right, last)

    def _read(self, slot: int) -> None:
        """Take over the known tokens that aren't computed yet; one that this model doesn't have becomes another."""
        table, followed = self._table, self._followed
        start, end = int(table.num_computed[slot]), int(followed.num_tokens[slot])
        table.histories[slot, start:end] = followed.histories[slot, start:end] % table.vocab_size
        table.num_tokens[slot] = end

    def _enter(self, freed: list[int], entering: list[NewSlot]) -> None:
        new = [self._own(each) for each in entering if not (each.num_candidates or each.num_claimed)]
        for slot in freed:
            self._guesses.pop(slot, None)
        self._table.apply(replace(self._plan([], []), freed=column(freed), new=new))

    def _own(self, new: NewSlot) -> NewSlot:
        """A sequence as this model gets it: with the parameters of a draw from unchanged logits."""
        given = new.params
        params = SamplingParams(
            temperature=given.temperature, top_p=given.top_p, top_k=given.top_k, min_p=given.min_p, max_tokens=1
        )
        tokens = numpy.frombuffer(new.token_ids, numpy.int32) % self._table.vocab_size
        bare = NewSlot(new.slot, tokens.tobytes(), new.num_prompt, new.num_computed, params, new.seed, new.sample)
        return replace(bare, adapter=NO_ADAPTER)

    def _append(self, slots: Ints, groups: Sequence[GroupChanges]) -> None:
        """Append the blocks that a plan gives to sequences of this model."""
        is_own = self._table.is_taken[slots]
        for number, table in zip(self._groups, self._table.groups, strict=True):
            if not (packed := groups[number].block_ids) or not isinstance(table, BlockTables):
                continue
            counts = numpy.diff(read_column(groups[number].block_offsets))
            blocks, own = read_column(packed)[numpy.repeat(is_own, counts)], counts[is_own]
            table.append(slots[is_own], blocks, numpy.concatenate(([0], numpy.cumsum(own))))

    def _plan(self, slots: Sequence[int], counts: Sequence[int] | Ints) -> StepPlan:
        """A step of this model alone."""
        nothing = GroupChanges(b"", column([0] * (len(slots) + 1)))
        return StepPlan(0, column(slots), column([int(count) for count in counts]), [nothing] * len(self._groups))
