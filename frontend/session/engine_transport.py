"""The interface of a transport to a model's own processes, be they one tree or several that stand in for one another.

A session, the daemon and the HTTP server use it. `tree/transport.py` is for one tree, `frontend/replicas` for several.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from ...protocol.errors import PenstockError
from ...protocol.memory_plan import MemoryPlan
from ...protocol.stats import Stats
from ..requests.pending_request import PendingRequest
from .transport import CLOSED_MEANWHILE, Transport

_STATS_SECONDS = 10.0


class Heir(Protocol):
    """Takes over the requests of processes that have died. From then on their transport passes on what it is asked."""

    def prepare(self, requests: Sequence[PendingRequest]) -> None:
        """Prepare requests that are about to be sent to the tree."""

    def take_over(self, transport: "EngineTransport", error: PenstockError) -> None: ...
    def submit(self, transport: "EngineTransport", requests: Sequence[PendingRequest]) -> None: ...
    def abort(self, transport: "EngineTransport", requests: Sequence[PendingRequest]) -> None: ...
    def cancel(self, transport: "EngineTransport", requests: Sequence[PendingRequest]) -> None: ...


class EngineTransport(Transport[PendingRequest]):
    """It owns the processes: they start with the constructor and end with `close()`."""

    def __init__(self) -> None:
        super().__init__()  # `error` is the reason why the processes ended
        self.closed_meanwhile = CLOSED_MEANWHILE  # the error for requests that `close` ends
        self.heir: Heir | None = None
        self.edition = 0  # of the model's files, as counted by the heir
        self.plan: MemoryPlan | None = None  # once it is ready
        self.on_death: Callable[[PenstockError], None] = lambda error: None  # called by a receiving thread

    @abstractmethod
    def wait_until_ready(self) -> MemoryPlan: ...

    @property
    @abstractmethod
    def is_ready(self) -> bool: ...

    @abstractmethod
    def terminate(self) -> None:
        """End the processes for everyone who waits for them. Any thread may call this."""

    @abstractmethod
    def end_samples(self, requests: Iterable[PendingRequest]) -> None:
        """End the samples that had ended before their request was submitted."""

    @abstractmethod
    def ask_stats(self, sequence_ids: Sequence[int] = ()) -> "Future[Stats]":
        """Request statistics, with the token counts of these sequences. Cancel it when nobody waits for it any more."""

    @abstractmethod
    async def silent(self, seconds: float) -> list[str]:
        """The processes that don't answer a ping within this time and aren't computing a step either."""

    def stats(self) -> Stats:
        answer = self.ask_stats()
        try:
            return answer.result(_STATS_SECONDS)
        except TimeoutError:
            raise PenstockError(f"The engine has not answered for {_STATS_SECONDS:.0f} s.") from None
        finally:
            answer.cancel()

    def reached(self, stage: str) -> None:
        """Note a stage of the start in the timeline, if one is written (option `trace`)."""
