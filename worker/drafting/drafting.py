"""The drafts of each step, from its plan: who may have some, what is guessed for them, and all ranks learn of it.

Rank 0 guesses when it launches the step, since only then are all tokens before it known. The engine hears at once of
the drafts of rows with masks, because each draft has a mask of its own.
"""

from collections.abc import Callable
from typing import Protocol

import numpy

from ...protocol.messages import Drafts, StepPlan, StepResult
from ...protocol.wire import column, values
from ..ranks.parallel import Parallel
from ..steps.drafts import StepDrafts
from ..steps.slots import SlotTable
from ..steps.step_rows import Ints
from .drafter import Drafter
from .histories import CopiedHistories, Histories, OwnHistories
from .proposer import Look

_ONE = column([1])


class Follower(Protocol):
    """A model that drafts, and keeps up with the steps."""

    def follow(self, plan: StepPlan) -> None:
        """Compute what earlier steps have left. Nothing of the plan is done yet."""

    def launch(self, plan: StepPlan, drafts: StepDrafts | None) -> None:
        """Take in that the step is computed next, with these drafts."""

    def learn(self, seconds: float) -> None:
        """A step took so long in which each row computed one token, and drafts."""


class Drafting:
    def __init__(
        self,
        table: SlotTable,
        ranks: Parallel,
        drafter: Drafter | None,
        send: Callable[[Drafts], None],
        follower: Follower | None = None,
    ) -> None:
        """`drafter`: on rank 0. `send` takes a message to the engine. `follower`: the proposer that computes."""
        self._table = table
        self._ranks = ranks
        self._drafter = drafter
        self._send = send
        self._follower = follower
        self._entered: set[int] = set()  # slots that the drafter knows
        self._histories: Histories = CopiedHistories(table) if table.device.is_asynchronous else OwnHistories(table)

    def follow(self, plan: StepPlan) -> None:
        """Let a draft model fill the blocks of earlier steps, before this one moves any of them."""
        if self._follower is not None:
            self._follower.follow(plan)

    def begin(self, plan: StepPlan) -> StepDrafts | None:
        """Return the drafts of a step that is about to be computed; None if no row has any."""
        drafts = self._drafts(plan)
        if self._follower is not None:
            self._follower.launch(plan, drafts)
        return drafts

    def _drafts(self, plan: StepPlan) -> StepDrafts | None:
        if self._drafter is not None:
            self._follow(self._drafter, plan)
        if not plan.rooms:
            return None
        found = {} if self._drafter is None else self._guessed(self._drafter, plan)
        if self._ranks.size > 1:
            found = self._shared(numpy.frombuffer(plan.rooms, numpy.int32), found)
        if self._drafter is not None and plan.masked:
            self._send_masked(plan, found)
        return StepDrafts(list(found), list(found.values())) if found else None

    def learn(self, plan: StepPlan, result: StepResult) -> None:
        """Take in how long a step took whose rows each computed one token, and drafts."""
        num_rows = len(values(plan.slots))
        if self._drafter is None or not plan.rooms or plan.num_tokens != _ONE * num_rows or plan.layered:
            return
        if self._follower is not None:
            self._follower.learn(result.forward_time)
        self._drafter.learn(num_rows, num_rows + sum(values(result.num_drafted)), result.forward_time)

    def _follow(self, drafter: Drafter, plan: StepPlan) -> None:
        """Tell the drafter who leaves and who enters."""
        if leaving := [slot for slot in values(plan.freed) if slot in self._entered]:
            self._entered.difference_update(leaving)
            for slot, history in zip(leaving, self._histories.read(leaving)):
                drafter.leave(slot, history)
        for new in plan.new:
            self._histories.enter(new.slot, new.token_ids)
            if not (new.num_candidates or new.num_claimed):
                self._entered.add(new.slot)
                drafter.enter(new.slot, new)

    def _guessed(self, drafter: Drafter, plan: StepPlan) -> dict[int, Ints]:
        """Guess drafts for the rows that are looked at in this step; most get none."""
        slots, rooms = values(plan.slots), values(plan.rooms)
        rows = [row for row, room in enumerate(rooms) if room and drafter.take_turn(slots[row])]
        if not rows:
            return {}
        histories = self._histories.read([slots[row] for row in rows])
        looks = [Look(slots[row], history, rooms[row]) for row, history in zip(rows, histories)]
        found = zip(rows, drafter.drafts(looks, len(slots)))
        return {row: numpy.array(drafts, numpy.int32) for row, drafts in found if drafts}

    def _shared(self, rooms: Ints, found: dict[int, Ints]) -> dict[int, Ints]:
        """Share rank 0's drafts with every rank."""
        packed = numpy.full((len(rooms), int(rooms.max())), -1, numpy.int64)
        for row, tokens in found.items():
            packed[row, : len(tokens)] = tokens
        on_device = self._table.device.put(packed)
        self._ranks.broadcast(on_device)
        packed = self._table.device.host_copy(on_device)()
        return {row: tokens[tokens >= 0].astype(numpy.int32) for row, tokens in enumerate(packed) if tokens[0] >= 0}

    def _send_masked(self, plan: StepPlan, found: dict[int, Ints]) -> None:
        rows = [row for row in values(plan.masked) if plan.has_room(row)]
        if rows:
            drafts = (found[row].tobytes() if row in found else b"" for row in rows)
            self._send(Drafts(plan.step, rows, list(drafts)))
