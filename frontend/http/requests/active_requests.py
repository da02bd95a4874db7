"""The requests being answered: what each is doing and for how long, and how its sender can stop it.

A request's content is not kept here. Its owner is its API key or, without keys, its address; nobody sees or stops
another owner's requests.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice

from ....protocol.errors import PenstockError
from ...session.engine_transport import EngineTransport
from ..answers.errors import ApiError
from ..loaded_model import SubmittedPrompt
from ..schemas.others import RequestState, RunningRequest
from .body import Scope

# How long engines may take to count generated tokens.
_COUNT_SECONDS = 1.0
_STOPPED = "This request was stopped before its answer was complete, by whoever sent it."


def owner_of(scope: Scope) -> str:
    host, _ = scope.get("client") or ("", 0)
    return scope["state"].get("salt") or f"address {host}"


class ActiveRequest:
    """One request, from its arrival on. The code that works on it sets `state`."""

    def __init__(self, request_id: str, endpoint: str, owner: str) -> None:
        self.id = request_id
        self.owner = owner
        self.model = ""
        self.state: RequestState = "loading"
        self.prompts: list[SubmittedPrompt] = []
        self._endpoint = endpoint
        self._start = time.monotonic()
        self._stopped = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Since it arrived."""
        return time.monotonic() - self._start

    def stop(self) -> None:
        self._stopped.set()

    async def stopped(self) -> None:
        """Wait until the request is stopped, and raise the error for its client."""
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
            seconds=round(self.seconds, 3),
        )


class ActiveRequests:
    """All requests that a server is answering."""

    def __init__(self) -> None:
        self._by_id: dict[str, ActiveRequest] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    @contextmanager
    def one(self, request: ActiveRequest) -> Iterator[None]:
        """List a request while the context is open."""
        self._by_id[request.id] = request
        try:
            yield
        finally:
            del self._by_id[request.id]

    async def of(self, owner: str) -> list[RunningRequest]:
        """The owner's requests, the oldest first."""
        own = [request for request in self._by_id.values() if request.owner == owner]
        counts = await _generated(prompt for request in own for prompt in request.prompts)
        # A prompt that was submitted in the meantime has no tokens yet.
        return [request.described(sum(counts.get(prompt, 0) for prompt in request.prompts)) for request in own]

    def find(self, request_id: str, owner: str) -> ActiveRequest:
        """The owner's request with this id. The error is the same for another owner's request as for an unknown one."""
        request = self._by_id.get(request_id)
        if request is None or request.owner != owner:
            raise ApiError(404, "No request of that id is running; it may have ended. See /v1/requests.")
        return request


async def _generated(prompts: Iterable[SubmittedPrompt]) -> dict[SubmittedPrompt, int]:
    """Tokens generated for each. Those of an answer that isn't streamed arrive late, so engines are asked."""
    counts = {prompt: prompt.request.num_generated_each for prompt in prompts}
    by_transport: dict[EngineTransport, list[SubmittedPrompt]] = defaultdict(list)
    for prompt in counts:
        if not prompt.request.prompt.is_streamed:
            by_transport[prompt.transport].append(prompt)
    found = await asyncio.gather(*(_counted(transport, whole) for transport, whole in by_transport.items()))
    for prompt, counted in chain.from_iterable(found):
        counts[prompt] = list(map(max, counts[prompt], counted))
    return {prompt: sum(each) for prompt, each in counts.items()}


async def _counted(
    transport: EngineTransport, prompts: Sequence[SubmittedPrompt]
) -> Iterable[tuple[SubmittedPrompt, Iterable[int]]]:
    """Tokens of their samples that still run; nothing if the engine doesn't answer."""
    sequences = [sequence for prompt in prompts for sequence in prompt.request.sequence_ids]
    with suppress(PenstockError, TimeoutError):
        asked = asyncio.wrap_future(transport.ask_stats(sequences))
        generated = iter((await asyncio.wait_for(asked, _COUNT_SECONDS)).generated)
        return [(prompt, list(islice(generated, prompt.request.prompt.params.n))) for prompt in prompts]
    return []
