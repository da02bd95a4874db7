"""Items of other threads reach the loop all, in their order, by one call for those that come at once."""

import asyncio
import threading

from penstock.frontend.session.threads import LoopQueue


def test_what_comes_at_once_is_taken_by_one_call_in_its_order():
    async def take():
        loop, taken = asyncio.get_running_loop(), []
        queue, calls = LoopQueue(loop, taken.append), []
        loop.call_soon_threadsafe, call = lambda work: calls.append(work) or call(work), loop.call_soon_threadsafe
        thread = threading.Thread(target=lambda: [queue.put(number) for number in range(100)])
        thread.start()
        thread.join()  # the loop can't look meanwhile
        await asyncio.sleep(0)
        assert taken == list(range(100)) and len(calls) == 1
        queue.put(100)
        await asyncio.sleep(0)
        assert taken[-1] == 100 and len(calls) == 2

    asyncio.run(take())


def test_nothing_is_lost_between_looking_and_the_next_call():
    async def take():
        taken = []
        queue = LoopQueue(asyncio.get_running_loop(), taken.append)
        threads = [threading.Thread(target=lambda: [queue.put(1) for _ in range(2000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(20):
            while len(taken) < 8000:
                await asyncio.sleep(0)

    asyncio.run(take())


def test_a_loop_that_has_ended_is_not_told():
    loop = asyncio.new_event_loop()
    queue = LoopQueue(loop, print)
    loop.close()
    queue.put(1)
