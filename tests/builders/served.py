"""A server over HTTP in a thread of its own, in front of one real model, as tests want it: started, asked, ended."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock import AsyncLLM
from penstock.frontend.http.connections.server import HttpServer
from penstock.frontend.http.one_model import OneModel
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.requests.budget import Budget

_BOUND = 60.0


class Served:
    """The server's address, and its loop for what a test wants to do beside it."""

    def __init__(self, server: HttpServer, llm: AsyncLLM, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.llm = llm
        self.loop = loop

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
        models = OneModel(llm, name, "another-name")
        server = HttpServer(models, HttpOptions(http="127.0.0.1:0", **options), budget, say)
        await server.start()
        return server

    server = run(start())
    try:
        yield Served(server, llm, loop)
    finally:
        run(server.close(2.0))


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
