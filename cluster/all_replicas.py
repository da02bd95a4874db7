"""The questions of a door to all replicas: metrics, loads, and running requests.

Together the replicas look like the trees of one server: `/metrics` and `/load` have the sums and each replica's own
figures, and a request is found wherever it runs.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from ..frontend.http.answers.errors import ApiError
from ..frontend.http.answers.reply import Reply
from ..frontend.http.endpoints.state import Report
from ..frontend.http.operations import LOAD_PATHS
from ..frontend.http.schemas.others import RequestList
from .serving import Message, WholeRequest

_REQUESTS = "/v1/requests"
_ANSWER_SECONDS = 10.0


class AllReplicas:
    def __init__(self, replicas: DeploymentHandle) -> None:
        self._replicas = replicas

    async def reply(self, request: WholeRequest) -> Reply | None:
        """Their reply; None to a request that one of them is to answer."""
        method, path = request.scope["method"], _path_within(request.scope)
        if method == "GET" and path == "/metrics":
            return (await self._report()).metrics()
        if method == "GET" and path in LOAD_PATHS:
            return (await self._report()).load()
        if method == "GET" and path == _REQUESTS:
            return _joined(await self._replies(request))
        if method == "DELETE" and path.startswith(f"{_REQUESTS}/"):
            return min(await self._replies(request), key=lambda reply: reply.status)  # of the one that has it
        return None

    async def _report(self) -> Report:
        # By their ids: numbers stay the same, whichever door is asked, until replicas come or go.
        return Report.total([report for _, report in sorted(await self._asked("report"), key=lambda each: each[0])])

    async def _replies(self, request: WholeRequest) -> list[Reply]:
        return list(map(_reply_of, await self._asked("answer_whole", request)))

    async def _asked(self, method: str, *arguments: Any) -> list[Any]:
        """Ask the replicas that are there; one that has just died is left out."""
        try:
            asked = self._replicas.broadcast(method, *arguments)
            found = await asked.results_async(timeout_s=_ANSWER_SECONDS, return_exceptions=True)
        except (TimeoutError, DeploymentUnavailableError):
            raise ApiError(503, "Not all replicas answer; `serve status` says which do.", retry_after=5) from None
        if not (answers := [each for each in found if not isinstance(each, BaseException)]):
            raise ApiError(503, "No replica answers; `serve status` says why.", retry_after=5)
        return answers


def _path_within(scope: dict[str, Any]) -> str:
    """The path behind the prefix that Serve routes to this application."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def _reply_of(messages: Sequence[Message]) -> Reply:
    start, *pieces = messages
    body = b"".join(piece.get("body", b"") for piece in pieces)
    return Reply(body, dict(start["headers"]).get(b"content-type", b""), start["status"])


def _joined(replies: Sequence[Reply]) -> Reply:
    """One list of all running requests, the oldest first."""
    if (refused := next((reply for reply in replies if reply.status != 200), None)) is not None:
        return refused
    lists = [msgspec.json.decode(reply.body, type=RequestList) for reply in replies]
    running = sorted(chain.from_iterable(each.data for each in lists), key=lambda request: -request.seconds)
    return Reply.of(RequestList(data=running))
