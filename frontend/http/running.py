"""The requests that are being answered: what each is doing, for how long, and how whoever sent it can stop it.

Nothing of what a request says is here. Its owner is the API key it came with or, where there are no keys, the address
it came from: nobody sees or stops what belongs to another.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

from ...protocol.errors import PenstockError
from ..session.tree.transport import TreeTransport
from .body import Scope
from .errors import ApiError
from .models import Submitted
from .schemas.others import RequestState, RunningRequest

# How long engines have to say how far they are.
_COUNT_SECONDS = 1.0
_STOPPED = "This request was stopped before its answer was complete, by whoever sent it."


def owner_of(scope: Scope) -> str:
    host, _ = scope.get("client") or ("", 0)
    return scope["state"].get("salt") or f"address {host}"


class Running:
    """One request, from its arrival on. `state` is told by whoever brings it forward."""

    def __init__(self, request_id: str, endpoint: str, owner: str) -> None:
        self.id = request_id
        self.owner = owner
        self.model = ""
        self.state: RequestState = "loading"
        self.prompts: list[Submitted] = []
        self._endpoint = endpoint
        self._start = time.monotonic()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def stopped(self) -> None:
        """Raises what its client is told, once it has been stopped."""
        await self._stopped.wait()
        raise ApiError(499, _STOPPED, code="request_stopped")

    def described(self, generated_tokens: int) -> RunningRequest:
        return RunningRequest(
            id=self.id,
            endpoint=self._endpoint,
            model=self.model,
            state="generating" if generated_tokens else self.state,
            prompt_tokens=sum(len(each.request.prompt.token_ids) // 4 for each in self.prompts),
            generated_tokens=generated_tokens,
            seconds=round(time.monotonic() - self._start, 3),
        )


class RunningRequests:
    """All of a server's."""

    def __init__(self) -> None:
        self._by_id: dict[str, Running] = {}

    @contextmanager
    def one(self, running: Running) -> Iterator[None]:
        self._by_id[running.id] = running
        try:
            yield
        finally:
            del self._by_id[running.id]

    async def of(self, owner: str) -> list[RunningRequest]:
        """The oldest first."""
        own = [running for running in self._by_id.values() if running.owner == owner]
        counts = await _generated(prompt for running in own for prompt in running.prompts)
        return [running.described(sum(counts[prompt] for prompt in running.prompts)) for running in own]

    def find(self, request_id: str, owner: str) -> Running:
        """Another's request and one that isn't there are told apart by nothing."""
        running = self._by_id.get(request_id)
        if running is None or running.owner != owner:
            raise ApiError(404, "No request of that id is running; it may have ended. See /v1/requests.")
        return running


async def _generated(prompts: Iterable[Submitted]) -> dict[Submitted, int]:
    """Tokens of each. Those of a whole answer come to this process at its end: before, its engine counts them."""
    counts = {prompt: prompt.request.num_generated for prompt in prompts}
    by_transport: dict[TreeTransport, list[Submitted]] = defaultdict(list)
    for prompt in counts:
        if not prompt.request.prompt.is_streamed:
            by_transport[prompt.transport].append(prompt)
    found = await asyncio.gather(*(_counted(transport, whole) for transport, whole in by_transport.items()))
    for prompt, count in chain.from_iterable(found):
        counts[prompt] += count
    return counts


async def _counted(transport: TreeTransport, prompts: Sequence[Submitted]) -> list[tuple[Submitted, int]]:
    """Of their samples that run; nothing where the engine says nothing."""
    owners = {sequence: prompt for prompt in prompts for sequence in prompt.request.sequence_ids}
    with suppress(PenstockError, TimeoutError):
        asked = asyncio.wrap_future(transport.ask_stats(list(owners)))
        return list(zip(owners.values(), (await asyncio.wait_for(asked, _COUNT_SECONDS)).generated))
    return []
