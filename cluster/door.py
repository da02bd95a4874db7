"""The HTTP door of a Serve application: reads each request whole, and has the fitting replica answer it.

A request whose replica ends before any of its answer was sent is asked of another one, so it isn't lost; an answer
that was being sent ends with the cause. The door knows nothing of models: it checks hosts and keys alone.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from ..frontend.http.answers.error_forms import error_form
from ..frontend.http.answers.errors import ApiError, as_api_error
from ..frontend.http.answers.reply import send_error, send_reply
from ..frontend.http.endpoint import while_there
from ..frontend.http.options import HttpOptions
from ..frontend.http.requests.body import BodyReader, ClientDisconnect, Receive, Scope, Send
from ..frontend.http.requests.guard import Guard
from ..frontend.requests.budget import Budget, Charge
from ..protocol.errors import PenstockError
from .all_replicas import AllReplicas
from .routing import text_keys
from .serving import Message, WholeRequest

# A request that was being answered at so many deaths may be their cause.
_MOST_DEATHS = 4
# What a replica's application reads; Serve's own scope also holds things that can't be sent.
_SCOPE = ("type", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "client", "server")
_EVENTS = b"text/event-stream"


class Door:
    """Serve makes one in each door's process."""

    def __init__(self, replicas: DeploymentHandle, http: Mapping[str, Any]) -> None:
        options = HttpOptions(**http)
        self._replicas, self._all = replicas.options(stream=True), AllReplicas(replicas)
        self._bodies, self._budget = BodyReader(options), Budget.of_machine()
        self._guard = Guard(self._call, options)

    def __serve_build_asgi_app__(self) -> Any:
        async def call(scope: Scope, receive: Receive, send: Send) -> None:  # Serve takes methods for another protocol
            await self._guard({**scope, "state": {}}, receive, send)

        return call

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose host and key the guard has admitted."""
        answer, salt = _Answer(scope, send), scope["state"]["salt"] or ""
        client = salt or str(scope.get("client"))
        try:
            with Charge(self._budget, client) as charge:
                body, keys = b"", []
                if scope["method"] == "POST":
                    needs_type = not scope["path"].startswith("/api/")  # Ollama takes JSON of any type
                    body = bytes(await self._bodies.read(scope, receive, charge, needs_type=needs_type))
                    keys = text_keys(body, salt)
                request = WholeRequest({name: scope[name] for name in _SCOPE if name in scope}, body, keys)
                if (reply := await self._all.reply(request)) is not None:
                    await send_reply(send, reply)
                    return
                await while_there(receive, self._answered(request, answer))
        except ClientDisconnect:
            pass
        except (ApiError, PenstockError) as error:
            await answer.fail(as_api_error(error))

    async def _answered(self, request: WholeRequest, answer: "_Answer") -> None:
        for death in range(1, _MOST_DEATHS + 1):
            try:
                async for message in self._messages(request):
                    await answer.send(message)
                return
            except BackPressureError:
                raise ApiError(503, "All replicas have as many requests as they take.", retry_after=1) from None
            except DeploymentUnavailableError:
                raise ApiError(503, "This model can't be used now; `serve status` says why.", retry_after=5) from None
            except RayTaskError:  # the application's own
                raise
            except RayError as error:  # the replica is gone, or its node, or the memory that it needed
                if answer.has_begun:
                    raise ApiError(503, "The replica that was answering is gone.", retry_after=1) from error
                if death == _MOST_DEATHS:
                    raise ApiError(500, f"The replicas that computed this request ended, {death} in a row.") from error

    async def _messages(self, request: WholeRequest) -> AsyncIterator[Message]:
        answers = self._replicas.answer.remote(request)
        try:
            async for message in answers:
                yield message
        finally:
            with suppress(Exception):  # it has ended by itself
                answers.cancel()


class _Answer:
    """The answer on its way to a client, which is sent an error in the form that fits what it has got so far."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.has_begun = False
        self._start: Message | None = None  # waits for what follows it: until then another replica can begin anew
        self._send = send
        self._form = error_form(scope["path"], scope["headers"])
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._start, self._is_stream = message, kind.startswith(_EVENTS)
            return
        if self._start is not None:
            start, self._start, self.has_begun = self._start, None, True
            await self._send(start)
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        if not self.has_begun:
            await send_error(self._send, error, self._form)
        elif self._is_stream:
            event = b"data: " + self._form.body(error) + b"\n\n"
            await self._send({"type": "http.response.body", "body": event, "more_body": False})
        else:  # half of a document: the connection's end is the only sign left
            raise error
