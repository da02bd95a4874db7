"""Clients take turns: at places for answers, at decoding, at grammars, and at a model that one of them fills."""

import asyncio
import json
from contextlib import ExitStack, asynccontextmanager

import httpx
import pytest
from builders.raw_http import connected, posted
from builders.served import served
from builders.watching import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.application import application, server_of
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.requests.body import FairQueue
from penstock.frontend.http.requests.concurrency_limit import ConcurrencyLimit
from penstock.frontend.requests.budget import Budget
from penstock.protocol.errors import RequestError


class Asking:
    """Requests that hold their place until they are told to go; `log` has who came when, and who was refused."""

    def __init__(self, max_requests: int, max_queue: int) -> None:
        self.places = ConcurrencyLimit(HttpOptions(max_requests=max_requests, max_queue=max_queue))
        self.most = max_requests
        self.log: list[str] = []
        self.tasks: list[asyncio.Task] = []
        self.going = asyncio.Semaphore(0)

    async def ask(self, *clients: str) -> None:
        for client in clients:
            self.tasks.append(asyncio.create_task(self._one(client)))
            await asyncio.sleep(0)

    async def _one(self, client: str) -> None:
        try:
            async with self.places.one(client):
                self.log.append(client)
                await self.going.acquire()
        except ApiError as error:
            self.log.append(f"{client} {error.status}")

    async def ended(self) -> list[str]:
        for _ in self.tasks:
            self.going.release()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert self.places.waiting == 0 and not self.places._queues
        assert self.places._free == self.most and not self.places._taken
        return self.log


def played(max_requests: int, max_queue: int, clients: str, meanwhile=None) -> list[str]:
    async def run() -> list[str]:
        asking = Asking(max_requests, max_queue)
        await asking.ask(*clients)
        if meanwhile is not None:
            await meanwhile(asking)
        return await asking.ended()

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_clients_take_turns_leave_a_quarter_of_the_places_and_find_room_in_a_full_queue_while_few_of_theirs_wait():
    assert played(1, 100, "aaaabcb") == ["a", "a", "b", "c", "a", "b", "a"]

    async def others_come(asking):
        assert asking.log == ["a"] * 6
        await asking.ask("b", "c", "d")
        assert asking.log == ["a"] * 6 + ["b", "c"]

    assert sorted(played(8, 100, "a" * 10, others_come)) == [*"aaaaaaaaaabcd"]
    log = played(1, 3, "aaaababb")
    assert log[0] == "a" and sorted(log[1:]) == ["a", "a", "a 429", "a 429", "b", "b 429", "b 429"], log


def test_those_who_leave_while_they_wait_or_in_the_moment_of_their_turn_leave_it_to_others():
    async def two_leave(asking):
        for task in asking.tasks[1:3]:
            task.cancel()

    async def one_leaves_at_its_turn(asking):
        asking.going.release()
        while asking.places.waiting == 2:
            await asyncio.sleep(0)
        asking.tasks[1].cancel()

    assert played(1, 100, "aabc", two_leave) == ["a", "c"]
    assert played(1, 100, "abc", one_leaves_at_its_turn) in (["a", "c"], ["a", "b", "c"])


# --- decoding: who wants little hardly waits, and nobody waits forever ------------------------------------------------


async def order_of(amounts: list[int], leave: frozenset[int] = frozenset()) -> list[int]:
    """All come at once, in this order, while one works already."""
    turns, order, begun = FairQueue(), [], asyncio.Event()

    async def work(number: int) -> None:
        async with turns.one(amounts[number]):
            order.append(number)
            await begun.wait()

    tasks = [asyncio.create_task(work(number)) for number in range(len(amounts))]
    await asyncio.sleep(0)
    for number in leave:
        tasks[number].cancel()
    begun.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not turns._is_taken and all(turn.done() for *_, turn in turns._waiting)
    return order


def test_short_ones_go_before_a_long_one_which_has_its_turn_though_they_keep_coming():
    assert asyncio.run(order_of([8, 8, 8, 1, 2])) == [0, 3, 4, 1, 2]

    async def position() -> int:
        turns, order = FairQueue(), []

        async def work(name: str, amount: int) -> None:
            async with turns.one(amount):
                order.append(name)
                await asyncio.sleep(0)
                if name == "short" and len(order) < 100:  # another one comes
                    tasks.append(asyncio.create_task(work("short", 1)))

        tasks = [asyncio.create_task(work("short", 1)) for _ in range(2)]
        tasks.append(asyncio.create_task(work("long", 10)))
        for task in tasks:
            await task
        return order.index("long")

    assert asyncio.run(position()) <= 22


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.frozensets(st.integers(0, 11)))
@settings(max_examples=50)
def test_whoever_leaves_all_others_have_their_turn(amounts, leaving):
    leave = frozenset(number for number in leaving if number < len(amounts))
    order = asyncio.run(order_of(amounts, leave))
    assert set(order) - leave == set(range(len(amounts))) - leave and len(order) == len(set(order))


# --- models ----------------------------------------------------------------------------------------------------------


async def status_of(server, model):
    async def application(scope, receive, send):
        await server({**scope, "state": {}}, receive, send)

    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        return (await client.post("/v1/completions", json={"model": model, "prompt": "a"})).status_code


def test_requests_for_a_model_that_never_comes_leave_other_models_their_places():
    class Models:
        num_waiting = 0

        @asynccontextmanager
        async def lease(self, name):
            if name == "never":
                self.num_waiting += 1
                await asyncio.Event().wait()
            raise RequestError("it is here")
            yield

    async def run():
        models = Models()
        server = application(server_of(models, HttpOptions(max_requests=4, max_queue=4), Budget(1 << 30, 1 << 30)))
        waiting = [asyncio.create_task(status_of(server, "never")) for _ in range(100)]
        while models.num_waiting < 4:
            await asyncio.sleep(0)
        status = await asyncio.wait_for(status_of(server, "there"), 60)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return status

    assert asyncio.run(run()) == 400


SHORT = {"model": "pocket", "prompt": "Hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
FLOOD, GOOD = {"Authorization": "Bearer first"}, {"Authorization": "Bearer second"}


@pytest.mark.long
def test_a_keys_grammar_is_compiled_before_the_many_of_another_and_what_is_left_is_not(pocket, keys):
    """The intersection of many expressions takes ever twice as long: here 5 s of a processor until it is refused."""
    with served(*pocket, **keys) as server, ExitStack() as flood:
        for number in range(40):
            schema = {"allOf": [{"type": "string", "pattern": f".*a.{{{each}}}b{number}"} for each in range(30)]}
            connection = flood.enter_context(connected(server.port))
            connection.sendall(posted(SHORT | {"guided_json": json.dumps(schema)}, **FLOOD))
        wait_until(lambda: server.stats().waiting >= 37, "the flood is there")
        with httpx.Client(base_url=server.address, timeout=60, headers=GOOD) as good:
            assert good.post("/v1/completions", json=SHORT | {"guided_regex": "[a-c][x-z]"}).status_code == 200
            assert server.stats().waiting >= 20
            flood.close()
            wait_until(lambda: server.stats().waiting == 0, "nobody waits for grammars of a client that has gone")
            # What was begun goes on, and no more of it.
            assert good.post("/v1/completions", json=SHORT | {"guided_regex": "[d-f][x-z]"}).status_code == 200


def test_a_key_is_answered_while_another_keeps_all_places_and_has_many_requests_waiting(paced, keys):
    with served(*paced, **keys) as server, ExitStack() as flood:
        for _ in range(24):  # there are sixteen places
            connection = flood.enter_context(connected(server.port))
            connection.sendall(posted(SHORT | {"max_tokens": 1900}, **FLOOD))
        wait_until(lambda: server.stats().waiting >= 8, "the flood is there")
        with httpx.Client(base_url=server.address, timeout=60, headers=GOOD) as good:
            before = server.stats()
            assert good.post("/v1/completions", json=SHORT).status_code == 200
            after = server.stats()
        # Eight wait before it, and each of those that run takes 1,900 steps. Some pass while it is on its way.
        assert after.waiting >= 6 and after.steps - before.steps < 1000
