"""A small application behind the server's own connections, in a thread of its own, where no model is needed."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from penstock.frontend.http.connections.connection import Context
from penstock.frontend.http.connections.listener import Listener
from penstock.frontend.http.connections.open_connections import OpenConnections
from penstock.frontend.http.connections.server import listening_socket
from penstock.frontend.http.options import HttpOptions


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


class Answering:
    def __init__(self, application: Any, listener: Listener, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.application = application
        self.context = context
        self.port = listener.socket.getsockname()[1]


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
        yield Answering(application, listener, context, loop)
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(90)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
