"""A replica of a Ray Serve deployment: one process tree, and the daemon's own HTTP application in front of it.

Serve hands over requests as ASGI calls (`__serve_build_asgi_app__`); a `Door` hands them over as method calls
(`answer`), so that it can choose the replica by a request's content.
"""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ray import serve

from ..frontend.async_llm import AsyncLLM
from ..frontend.http.application import application, server_of
from ..frontend.http.endpoints.state import Report
from ..frontend.http.one_model import OneModel
from ..frontend.http.options import HttpOptions
from ..frontend.requests.budget import Budget
from ..frontend.session.engine_transport import EngineTransport
from ..protocol.errors import PenstockError
from .routing import KnownPrefixes

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

    from ..frontend.http.requests.body import Receive, Scope, Send

Message = MutableMapping[str, Any]

# A process that hasn't answered for this long hangs; Serve then starts another replica.
_SILENT_SECONDS = 10.0
# Between two looks at whether the tree lives, and from its death to the end of its replica.
_LOOK_SECONDS, _LAST_SECONDS = 0.1, 0.5
# What the autoscaler keeps busy, so that the next requests find room while a replica starts.
_ROWS_IN_USE, _KV_IN_USE = 0.7, 0.85


class WholeRequest(NamedTuple):
    """A request whose body has arrived, on its way from a door to a replica."""

    scope: dict[str, Any]
    body: bytes
    keys: list[int]  # of its prefixes, the shortest first


class Replica:
    """Serve makes one in each of its replicas' processes."""

    async def __init__(self, model: str, names: list[str], http: Mapping[str, Any], options: Mapping[str, Any]) -> None:  # type: ignore[misc]
        self._prefixes = KnownPrefixes()
        self._llm = AsyncLLM(model, connect="never", **options)
        try:
            await self._llm.ready()
        except BaseException:
            await self._llm.close()
            raise
        self._watching = asyncio.ensure_future(self._end_with_tree())
        self._server = server_of(OneModel(self._llm, *names), HttpOptions(**http), Budget.of_machine())
        self._application = self._assembled()

    def __serve_build_asgi_app__(self) -> Any:
        return self._application

    def _assembled(self) -> Any:
        guarded = application(self._server)

        async def call(scope: "Scope", receive: "Receive", send: "Send") -> None:
            await guarded({**scope, "state": {}}, receive, send)

        return call

    async def answer(self, request: WholeRequest) -> AsyncIterator[Message]:
        """Answer a request that a door has read; yields what the application sends."""
        self._prefixes.add(request.keys)
        await self._require_tree()
        arriving = [{"type": "http.request", "body": request.body, "more_body": False}]
        sent: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)  # the reader's pace is the application's

        async def receive() -> Message:
            if arriving:
                return arriving.pop()
            await asyncio.Event().wait()  # a client that leaves ends this whole call
            raise AssertionError("unreachable")

        running = asyncio.ensure_future(self._application(request.scope, receive, sent.put))
        try:
            while not (running.done() and sent.empty()):
                arrival = asyncio.ensure_future(sent.get())
                await asyncio.wait((arrival, running), return_when=asyncio.FIRST_COMPLETED)
                if arrival.done():
                    await self._require_tree()
                    yield arrival.result()
                else:  # a message that comes at this moment stays in the queue
                    arrival.cancel()
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _require_tree(self) -> None:
        """Wait for this process's end if its tree has died: the door then asks another replica."""
        if (await self._llm.ready_session()).transport.error is not None:
            await asyncio.Event().wait()

    async def _end_with_tree(self) -> None:
        """Serve replaces a process that is gone at once, and one that says it is unwell after many seconds."""
        transport = (await self._llm.ready_session()).transport
        while transport.error is None:
            await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.sleep(_LAST_SECONDS)  # in which clients are told why, if there is no door to ask another one
        os._exit(1)

    # --- what doors ask of all replicas -------------------------------------------------------------------------------

    async def answer_whole(self, request: WholeRequest) -> list[Message]:
        """Answer a request whose answer is short."""
        return [message async for message in self.answer(request)]

    async def report(self) -> tuple[str, Report]:
        """How it is doing, and its id."""
        return serve.get_replica_context().replica_id.unique_id, await Report.of(self._server)

    # --- what Serve asks ----------------------------------------------------------------------------------------------

    async def check_health(self) -> None:
        """Raise if the tree has died or hangs: Serve then replaces this replica."""
        transport = (await self._llm.ready_session()).transport
        transport.check()
        if isinstance(transport, EngineTransport) and (silent := await transport.silent(_SILENT_SECONDS)):
            raise PenstockError(f"{', '.join(silent)} did not answer for {_SILENT_SECONDS:g} s.")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        session, stats = await self._llm.ready_session(), await self._llm.stats()
        most = session.tree_config.step_limits(session.plan.device if session.plan else "cpu")[0]
        return {"rows": stats.running + stats.waiting, "most_rows": most, "kv_usage": stats.kv_usage}

    def record_routing_stats(self) -> dict[str, Any]:
        return {"prefixes": self._prefixes.newest()}

    async def __del__(self) -> None:
        with suppress(AttributeError, PenstockError):  # no model: its constructor has failed
            await self._llm.close()


def replicas_wanted(context: "AutoscalingContext") -> tuple[int, dict[str, Any]]:
    """Serve's autoscaling policy: enough replicas that rows and KV blocks are in use up to the shares above."""
    told = context.aggregated_metrics or {}
    rows, most, kv = (told.get(name, {}).values() for name in ("rows", "most_rows", "kv_usage"))
    queued = context.total_queued_requests or 0.0
    wanted = 0.0 if told else context.target_num_replicas  # nothing is known yet
    if most_rows := max(most, default=0.0):
        wanted = (sum(rows) + queued) / (most_rows * _ROWS_IN_USE)
    wanted = max(wanted, sum(kv) / _KV_IN_USE)
    return math.ceil(wanted), {}
