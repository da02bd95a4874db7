"""The whole server as one ASGI application: guard, router, endpoints and page."""

import asyncio
import json
from collections.abc import Callable
from functools import cache

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from ... import __version__
from ..requests.budget import Budget
from .answers.error_forms import error_form
from .answers.errors import ApiError, as_api_error
from .answers.reply import Reply, send_error
from .answers.request_log import RequestLog
from .endpoint import Call, Endpoint, Server, UploadEndpoint
from .files.stored_work import StoredWork
from .metrics import Metrics
from .models import Models
from .openapi import document
from .operations import OPERATIONS
from .options import HttpOptions
from .page import page
from .requests.body import BodyReader, Receive, Scope, Send
from .requests.concurrency_limit import ConcurrencyLimit
from .requests.guard import Guard
from .requests.other_paths import advice


def server_of(models: Models, options: HttpOptions, budget: Budget, stored: StoredWork | None = None) -> Server:
    """Make the state that the endpoints share. `stored` keeps files and batches."""
    limit, bodies = ConcurrencyLimit(options), BodyReader(options)
    return Server(models, options, budget, Metrics(budget), limit, bodies, asyncio.Lock(), stored)


def application(server: Server, say: Callable[[str], None] | None = None) -> Guard | RequestLog:
    """`say` is called with a log line for each request; None: no request log."""
    routes = [
        Route(
            row.path.replace("{named}", "{named:path}"),
            (UploadEndpoint if row.is_upload else Endpoint)(server, row.path, row.work, row.body, row.answer_ids),
            methods=[row.method],
        )
        for row in OPERATIONS
    ]
    routes.append(Route("/openapi.json", Endpoint(server, "/openapi.json", _openapi, None), methods=["GET"]))
    routes.append(Route("/", Endpoint(server, "/", _page, None), methods=["GET"]))
    inner = Starlette(routes=routes)
    inner.router.redirect_slashes = False
    inner.add_exception_handler(HTTPException, _refused)
    inner.add_exception_handler(Exception, _refused)
    guard = Guard(inner, server.options)
    return guard if say is None else RequestLog(guard, say)


async def _openapi(call: Call, body: None) -> Reply:
    return Reply(_document())


@cache
def _document() -> bytes:
    return json.dumps(document(__version__)).encode()


async def _page(call: Call, body: None) -> Reply:
    return page()


class _ErrorResponse(Response):
    """An error, in the form that Starlette's exception handlers have to return."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(status_code=error.status)
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_error(send, self._error, error_form(scope["path"], scope["headers"]))


def _allowed(request: Request) -> str:
    """List the methods of all routes that have the request's path."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = (route for route in routes if route.matches(request.scope)[0] != Match.NONE)
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))


def _refused(request: Request, error: Exception) -> _ErrorResponse:
    if not isinstance(error, HTTPException):
        return _ErrorResponse(as_api_error(error))
    if error.status_code == 405:
        allow = _allowed(request)
        return _ErrorResponse(ApiError(405, f"This endpoint's methods are {allow}, not {request.method}.", allow=allow))
    hint = advice(request.url.path, [row.path for row in OPERATIONS])
    return _ErrorResponse(ApiError(404, f"There is no such endpoint; /openapi.json lists them.{hint}"))
