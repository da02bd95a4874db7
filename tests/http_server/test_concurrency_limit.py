"""Places for answers in computation: clients take turns at them, and at room in the queue before them."""

import asyncio

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.requests.concurrency_limit import ConcurrencyLimit


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


def test_clients_take_turns():
    async def order() -> list[str]:
        asking = Asking(1, 100)
        await asking.ask("a", "a", "a", "a", "b", "c", "b")
        return await asking.ended()

    assert asyncio.run(order()) == ["a", "a", "b", "c", "a", "b", "a"]


def test_a_quarter_of_the_places_is_never_one_clients():
    async def order() -> list[str]:
        asking = Asking(8, 100)
        await asking.ask(*"aaaaaaaaaa")
        assert asking.log == ["a"] * 6
        await asking.ask("b", "c", "d")
        assert asking.log == ["a"] * 6 + ["b", "c"]
        return await asking.ended()

    assert sorted(asyncio.run(order())) == [*"aaaaaaaaaabcd"]


def test_who_has_few_waiting_finds_room_in_a_full_queue():
    async def order() -> list[str]:
        asking = Asking(1, 3)
        await asking.ask("a", "a", "a", "a", "b", "a", "b", "b")
        return await asking.ended()

    log = asyncio.run(order())
    assert log[0] == "a" and sorted(log[1:]) == ["a", "a", "a 429", "a 429", "b", "b 429", "b 429"], log


def test_those_who_leave_while_they_wait_leave_their_turn_to_others():
    async def order() -> list[str]:
        asking = Asking(1, 100)
        await asking.ask("a", "a", "b", "c")
        for task in asking.tasks[1:3]:
            task.cancel()
        return await asking.ended()

    assert asyncio.run(order()) == ["a", "c"]


def test_one_who_leaves_in_the_moment_of_its_turn_hands_it_on():
    async def order() -> list[str]:
        asking = Asking(1, 100)
        await asking.ask("a", "b", "c")
        asking.going.release()
        while asking.places.waiting == 2:
            await asyncio.sleep(0)
        asking.tasks[1].cancel()
        return await asking.ended()

    assert asyncio.run(order()) in (["a", "c"], ["a", "b", "c"])
