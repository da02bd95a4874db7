"""Turns at work that one can do at a time: who wants little hardly waits, and nobody waits forever."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.http.requests.fair_queue import FairQueue


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


def test_short_ones_go_before_long_ones():
    assert asyncio.run(order_of([8, 8, 8, 1, 2])) == [0, 3, 4, 1, 2]


def test_a_long_one_has_its_turn_though_short_ones_keep_coming():
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
def test_whoever_leaves_all_others_have_their_turn(amounts, leaving):
    leave = frozenset(number for number in leaving if number < len(amounts))
    order = asyncio.run(order_of(amounts, leave))
    assert set(order) - leave == set(range(len(amounts))) - leave and len(order) == len(set(order))
