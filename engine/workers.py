"""The engine's side of the workers: all ranks agree on a memory plan, then receive step after step.

Every rank gets the same stream of messages; only rank 0 answers. The stream can be recorded for a replay.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from ..protocol.adapter_messages import AdapterOrder
from ..protocol.layer_groups import AboutDisk, GroupPlan
from ..protocol.media import MediaPlan
from ..protocol.memory_plan import MemoryPlan
from ..protocol.messages import Allocate, Allocated, EngineInbox, Loaded, MaskFrame, StepPlan, StepResult, Stop
from ..protocol.options.config import EngineConfig
from ..protocol.processes.recording import Recorder
from ..protocol.processes.sockets import Inbox, Outbox

Answer = TypeVar("Answer", Loaded, Allocated)
Value = TypeVar("Value")


class StopRequested(Exception):
    """The tree was told to stop before it was ready."""


class Workers:
    def __init__(self, directory: Path, config: EngineConfig) -> None:
        self.config = config
        self._outboxes = [Outbox(directory, f"worker{rank}") for rank in range(config.tensor_parallel_size)]
        self._recorder = Recorder(config.record) if config.record else None
        self.early: list[AboutDisk] = []  # what ranks have told while others were not ready

    def agree(self, inbox: Inbox[EngineInbox]) -> MemoryPlan:
        """Collect every rank's capacity, have all ranks allocate the smallest, and wait until they have."""
        plans = self._one_from_each(inbox, Loaded, lambda loaded: loaded.plan)
        plan = agreed_plan(plans)
        groups = plan.groups
        num_blocks, num_cells = [each.num_blocks for each in groups], [each.num_cpu_blocks for each in groups]
        self.send(Allocate(num_blocks, plan.max_model_len, num_cells))
        self._one_from_each(inbox, Allocated, lambda allocated: allocated.rank)
        return plan

    def send(self, message: StepPlan | MaskFrame | Allocate | AdapterOrder | Stop) -> None:
        if self._recorder is not None:
            self._recorder.write(message, is_answer=False)
        for outbox in self._outboxes:
            outbox.send(message)

    def note_answer(self, result: StepResult) -> None:
        """Record a result, in the order in which the engine takes it in."""
        if self._recorder is not None:
            self._recorder.write(result, is_answer=True)

    def _one_from_each(
        self, inbox: Inbox[EngineInbox], kind: type[Answer], value: Callable[[Answer], Value]
    ) -> list[Value]:
        found: dict[int, Value] = {}
        while len(found) < len(self._outboxes):
            message = inbox.receive()
            if isinstance(message, Stop):
                self.send(message)
                raise StopRequested
            if isinstance(message, AboutDisk):
                self.early.append(message)
            if isinstance(message, kind):
                found[message.rank] = value(message)
        return [found[rank] for rank in sorted(found)]


def agreed_plan(plans: list[MemoryPlan]) -> MemoryPlan:
    """The plan that fits every rank."""
    groups = [_agreed_group(list(of_ranks)) for of_ranks in zip(*(plan.groups for plan in plans), strict=True)]
    shortest = min(plan.max_model_len for plan in plans)
    return msgspec.structs.replace(plans[0], groups=groups, max_model_len=shortest, media=_agreed_media(plans))


def _agreed_media(plans: list[MemoryPlan]) -> MediaPlan | None:
    """The plan of a vision model's media: as many rows as every rank can keep."""
    of_ranks = [plan.media for plan in plans if plan.media is not None]
    if not of_ranks:
        return None
    return msgspec.structs.replace(of_ranks[0], num_rows=min(media.num_rows for media in of_ranks))


def _agreed_group(of_ranks: list[GroupPlan]) -> GroupPlan:
    return msgspec.structs.replace(
        of_ranks[0],
        num_blocks=min(group.num_blocks for group in of_ranks),
        num_cpu_blocks=min(group.num_cpu_blocks for group in of_ranks),
    )
