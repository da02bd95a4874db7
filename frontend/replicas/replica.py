"""One of several trees that stand in for one another: its lives, one process tree after another.

A tree that dies is started again, at once the first time and after growing pauses if it keeps dying. It is opened to
requests once it has the adapters of the others.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ...protocol.errors import EngineDeadError
from ...protocol.memory_plan import MemoryPlan
from ..models.model_files import ModelFiles
from ..requests.pending_request import PendingRequest
from ..session.adapters import Adapters
from ..session.tree.transport import TreeTransport
from .choice import Choice, Work
from .shares import Share, on_cores

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
# A tree that has lived this long ends the series of deaths before it.
_LONG_LIFE = 60.0


class ReplicaTransport(TreeTransport):
    """The transport to one life of a tree; it tells the choice when the tree's work is done."""

    choice: Choice

    def __init__(self, *arguments: Any) -> None:
        self.works: dict[int, Work] = {}  # by request
        super().__init__(*arguments)

    @property
    def requests(self) -> list[PendingRequest]:
        return list(self._pending.values())

    def _forget(self, request_ids: Iterable[int]) -> list[PendingRequest]:
        found = super()._forget(request_ids)
        for request in found:
            if (work := self.works.pop(request.request_id, None)) is not None:
                self.choice.end(work)
        return found

    def _finish(self, request: PendingRequest) -> None:
        super()._finish(request)
        if (work := self.works.pop(request.request_id, None)) is not None:
            self.choice.end(work, None if request.prompt.pooled is not None else max(request.num_generated_each))


Start = Callable[[Share], ReplicaTransport]


def starter(files: ModelFiles, shown: tuple[str, ...]) -> Start:
    """What starts a tree of this model."""

    def start(share: Share) -> ReplicaTransport:
        with on_cores(share.cores):
            return ReplicaTransport(share.config, files, shown)

    return start


def restart_pause(deaths_in_a_row: int) -> float:
    """Seconds before the next start: 0 after the first death, then doubled up to a bound."""
    if deaths_in_a_row < 2:
        return 0.0
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(deaths_in_a_row - 2, 10))


class Replica:
    def __init__(self, number: int, share: Share, start: Start, choice: Choice) -> None:
        self.number = number
        self.share = share
        self.choice = choice
        self.is_open = False  # to requests
        self.is_starting = False  # again
        self.deaths_in_a_row = 0
        self.num_lives = 0
        self._start = start
        self._ready_since = math.inf
        self.begin_life()

    def begin_life(self) -> None:
        self.num_lives += 1
        self.transport = self._start(self.share)
        self.transport.choice = self.choice
        self.adapters = Adapters(self.share.config, self.transport)

    def open(self, plan: MemoryPlan) -> None:
        self._ready_since = time.monotonic()
        self.choice.open(self.number, plan.num_blocks * self.share.config.block_size)
        self.is_open = True

    def shut(self) -> None:
        """Give it no more requests."""
        if self.is_open:
            self.is_open = False
            self.choice.close(self.number)

    def note_death(self) -> None:
        if time.monotonic() - self._ready_since > _LONG_LIFE:
            self.deaths_in_a_row = 0
        self.deaths_in_a_row += 1
        self._ready_since = math.inf

    @property
    def pause(self) -> float:
        return restart_pause(self.deaths_in_a_row)

    def hold_to(self, plan: MemoryPlan) -> None:
        """Let its next lives take requests of the length that all trees take."""
        config = msgspec.structs.replace(self.share.config, max_model_len=plan.max_model_len)
        self.share = self.share._replace(config=config)

    def check(self, agreed: MemoryPlan) -> MemoryPlan:
        """The plan of a new life; raises if its answers could differ from those of the other trees."""
        plan = self.transport.wait_until_ready()
        if (plan.kernels_digest, plan.dtype, plan.kv_dtype) != (agreed.kernels_digest, agreed.dtype, agreed.kv_dtype):
            raise EngineDeadError("It was started with other kernels than the other trees, and so it was ended.")
        return plan
