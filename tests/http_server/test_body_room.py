"""Bodies that come at once where there is no room for all: one that takes its time gives way, and the others come."""

import asyncio

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.requests import body as body_module
from penstock.frontend.http.requests.body import BodyReader
from penstock.frontend.requests.budget import Budget, Charge

SCOPE = {"headers": [(b"content-type", b"application/json")]}


def client(content, *, ends):
    """What it sends: the content, and nothing more where it never ends."""
    pieces = [{"type": "http.request", "body": content, "more_body": not ends}]

    async def receive():
        if not pieces:
            await asyncio.Event().wait()
        return pieces.pop()

    return receive


def test_several_that_want_the_room_of_a_slow_one_in_the_same_moment_have_it(monkeypatch):
    monkeypatch.setattr(body_module, "_PATIENCE", 0.0)

    async def run():
        reader, budget = BodyReader(HttpOptions()), Budget(1 << 20, 1 << 20)

        def read(name, content, *, ends):
            charge = Charge(budget, name)
            task = asyncio.create_task(reader.read(SCOPE, client(content, ends=ends), charge))
            task.add_done_callback(lambda task: task.exception() and charge.release())
            return task

        slow = read("slow", b"x" * 500_000, ends=False)
        await asyncio.sleep(0.01)
        others = []
        for number in range(5):  # each a round of the loop later
            others.append(read(f"client {number}", b"x" * 120_000, ends=True))
            await asyncio.sleep(0)
        found = await asyncio.gather(slow, *others, return_exceptions=True)
        return [each.status if isinstance(each, ApiError) else len(each) for each in found]

    assert asyncio.run(run()) == [408] + [120_000] * 5
