"""A server over HTTP in a thread of its own: in front of one real model, or of an application where none is needed."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs

import httpx
import uvloop

from penstock import AsyncLLM
from penstock.frontend.http.batches.service import Batches
from penstock.frontend.http.connections.connection import Context
from penstock.frontend.http.connections.listener import Listener
from penstock.frontend.http.connections.open_connections import OpenConnections
from penstock.frontend.http.connections.server import HttpServer, listening_socket
from penstock.frontend.http.one_model import OneModel
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.requests.budget import Budget

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
_BOUND = 600.0


@dataclass
class Served:
    server: HttpServer
    llm: AsyncLLM
    loop: asyncio.AbstractEventLoop
    stored: Batches

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def stats(self) -> Any:
        return self.llm._session.transport.stats()

    def is_idle(self) -> bool:
        return self.stats().running == 0


@contextmanager
def served(
    llm: AsyncLLM,
    loop: asyncio.AbstractEventLoop,
    budget: Budget | None = None,
    say: Callable[[str], None] | None = None,
    name: str = "pocket",
    **options: Any,
) -> Iterator[Served]:
    """A server on a free port for as long as the context is open; several may stand before one model. `say` is told of
    each request."""

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(_BOUND)

    async def start() -> HttpServer:
        models, settled = OneModel(llm, name, "another-name"), HttpOptions(http="127.0.0.1:0", **options)
        stored.append(Batches(models, settled, Path(folder, "files")))
        await stored[0].start()
        server = HttpServer(models, settled, budget, say, stored[0])
        await server.start()
        return server

    stored: list[Batches] = []
    with TemporaryDirectory() as folder:
        server = run(start())
        try:
            yield Served(server, llm, loop, stored[0])
        finally:
            run(server.close(2.0))
            run(stored[0].close())


@contextmanager
def served_client(model: tuple[AsyncLLM, asyncio.AbstractEventLoop], **options: Any) -> Iterator[tuple]:
    with served(*model, **options) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        yield server, client


@contextmanager
def running_model(model: Any, **options: Any) -> Iterator[tuple[AsyncLLM, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()
    llm = AsyncLLM(model, quiet=True, **options)
    try:
        asyncio.run_coroutine_threadsafe(llm.ready(), loop).result(_BOUND)
        yield llm, loop
    finally:
        asyncio.run_coroutine_threadsafe(llm.close(), loop).result(_BOUND)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_BOUND)
        loop.close()


# --- without a model -------------------------------------------------------------------------------------------------


class Echo:
    """`/` tells of its request once it is whole; `/early` does so at once; `/wait` until it is released; `?n=5`
    asks for as many bytes in place of that, `/chunks?n=5` for a stream of them; `/fail` and `/break` fail."""

    def __init__(self) -> None:
        self.running = 0
        self.most_running = 0
        self.bodies: list[int] = []
        self.released = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await self._answer(scope, receive, send)
        finally:
            self.running -= 1

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        path, asked = scope["path"], parse_qs(scope["query_string"].decode())
        body = b"" if path == "/early" else await self._body(receive)
        number = int(asked.get("n", ["0"])[0])
        if path == "/fail":
            raise ValueError("on purpose")
        if path == "/wait":
            while not self.released.is_set() and not await left(receive):
                pass
        if path == "/chunks":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            await send({"type": "http.response.body", "body": b"x" * number, "more_body": True})
            await send({"type": "http.response.body"})
            return
        told = {"path": path, "method": scope["method"], "body": len(body),
                "headers": sorted({name.decode("latin-1") for name, _ in scope["headers"]})}  # fmt: skip
        content = b"x" * number if "n" in asked else json.dumps(told).encode()
        headers = [(b"content-length", b"%d" % (len(content) + (path == "/break")))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": path == "/break"})

    async def _body(self, receive: Any) -> bytes:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.bodies.append(-1)
                return body
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(len(body))
        return body


async def left(receive: Any) -> bool:
    try:
        async with asyncio.timeout(0.02):
            return (await receive())["type"] == "http.disconnect"
    except TimeoutError:
        return False


@dataclass
class Answering:
    application: Any
    context: Context
    loop: asyncio.AbstractEventLoop
    port: int


@contextmanager
def answering(
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    tls: ssl.SSLContext | None = None,
    application: Any = None,
    **options: Any,
) -> Iterator[Answering]:
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    application = application or Echo()

    async def start() -> tuple[Listener, Context]:
        limits = HttpOptions(http="127.0.0.1:0", **options)
        context = Context(application, limits, OpenConnections(limits.max_connections), "http")
        return Listener(listening_socket("127.0.0.1", 0), context, tls), context

    async def stop() -> None:
        listener.stop()
        listener.socket.close()
        for connection in context.open.all():
            connection.abort()
        if context.tasks:
            await asyncio.wait(context.tasks, timeout=60)
        assert not context.tasks and len(context.open) == 0

    listener, context = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    try:
        yield Answering(application, context, loop, listener.socket.getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(90)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
