"""Requests for a model that never comes hold up their own model, whoever sends them and however many."""

import asyncio
import json
from contextlib import asynccontextmanager

from penstock.frontend.http.application import application
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.requests.budget import Budget
from penstock.protocol.errors import RequestError


class Models:
    @asynccontextmanager
    async def lease(self, name):
        if name == "never":
            await asyncio.Event().wait()
        raise RequestError("it is here")
        yield


async def asked(server, model):
    """The status of the answer."""
    body = json.dumps({"model": model, "prompt": "a"}).encode()
    scope = {
        "type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"", "query_string": b"", "state": {},
        "client": ("127.0.0.1", 1), "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }  # fmt: skip
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    sent = []

    async def receive():
        if not pieces:
            await asyncio.Event().wait()
        return pieces.pop()

    async def send(message):
        sent.append(message)

    await server(scope, receive, send)
    return sent[0]["status"]


def test_requests_for_a_model_that_never_comes_leave_other_models_their_places():
    async def run():
        server = application(Models(), HttpOptions(max_requests=4, max_queue=4), Budget(1 << 30, 1 << 30))
        waiting = [asyncio.create_task(asked(server, "never")) for _ in range(100)]
        await asyncio.sleep(0.1)
        status = await asyncio.wait_for(asked(server, "there"), 10)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return status

    assert asyncio.run(run()) == 400
