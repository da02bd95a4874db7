"""Threads of one kind of work: turns, refusals of what can't begin, an end for who waits, and items for a loop."""

import asyncio
import threading

import pytest

from penstock.frontend.session.threads import LoopQueue, Threads, in_own_thread
from penstock.protocol.errors import BusyError, ClosedError

WAIT = 60.0


class Gate:
    """Work that goes on until it is let go."""

    def __init__(self):
        self.begun = threading.Event()
        self._end = threading.Event()

    def __call__(self):
        self.begun.set()
        assert self._end.wait(WAIT)

    def open(self):
        self._end.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


def test_clients_take_turns_however_much_one_of_them_asks(gate):
    threads, done = Threads("Jobs", 1), []
    first = threads.submit(gate, client="many")
    assert gate.begun.wait(WAIT)
    jobs = [threads.submit(done.append, f"many {number}", client="many") for number in range(3)]
    jobs += [threads.submit(done.append, f"{client} 0", client=client) for client in ("few", "one")]
    gate.open()
    for job in (first, *jobs):
        job.result(WAIT)
    assert done == ["many 0", "few 0", "one 0", "many 1", "many 2"]


def test_no_client_holds_all_threads_and_what_has_none_may_use_all(gate):
    everyone, together = Threads("Jobs", 3), threading.Barrier(3)
    for job in [everyone.submit(together.wait, WAIT) for _ in range(3)]:
        job.result(WAIT)
    threads = Threads("Jobs", 2)
    threads.submit(gate, client="greedy")
    waiting = threads.submit(gate, client="greedy")
    assert gate.begun.wait(WAIT)
    assert threads.submit(lambda: "done", client="other").result(WAIT) == "done"
    assert not waiting.running()
    gate.open()
    waiting.result(WAIT)


def test_only_so_much_waits_and_half_of_it_is_one_clients(gate):
    threads = Threads("Jobs", 1, most_waiting=4)
    threads.submit(gate)
    assert gate.begun.wait(WAIT)
    for _ in range(2):
        threads.submit(int, client="greedy")
    with pytest.raises(BusyError, match="Too many jobs wait already"):
        threads.submit(int, client="greedy")
    left = [threads.submit(int, client=client) for client in ("a", "b")]
    with pytest.raises(BusyError):
        threads.submit(int, client="c")
    left[0].cancel()  # and leaves its place
    assert threads.submit(int, client="c").cancel()


def test_who_waits_too_long_is_refused_and_who_has_begun_is_not(gate):
    threads = Threads("Jobs", 1)

    async def ask():
        begun = asyncio.create_task(threads.run(gate))
        await in_own_thread(gate.begun.wait, WAIT)
        threads.patience = 0.05
        with pytest.raises(BusyError, match="Jobs of others have taken more than 0.05 s"):
            await threads.run(int)
        gate.open()
        await begun

    asyncio.run(ask())


def test_a_call_that_is_cancelled_in_time_never_begins(gate):
    threads, done = Threads("Jobs", 1), []

    async def ask():
        begun = asyncio.create_task(threads.run(gate))
        await in_own_thread(gate.begun.wait, WAIT)
        waiting = asyncio.create_task(threads.run(done.append, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open()
        await begun
        await threads.run(int)

    asyncio.run(ask())
    assert not done


def test_whoever_waits_is_told_of_the_end_and_of_an_error(gate):
    threads = Threads("Jobs", 1)
    jobs = [threads.submit(gate) for _ in range(3)]
    assert gate.begun.wait(WAIT)
    threads.close()
    for job in jobs:
        with pytest.raises(ClosedError):
            job.result(WAIT)
    with pytest.raises(ClosedError):
        threads.submit(int)
    with pytest.raises(ZeroDivisionError):  # an error is the caller's
        Threads("Jobs", 1).submit(lambda: 1 / 0).result(WAIT)


def test_what_comes_at_once_is_taken_by_one_call_in_its_order_and_nothing_is_lost_before_the_next_one():
    async def take():
        loop, taken = asyncio.get_running_loop(), []
        queue, calls = LoopQueue(loop, taken.append), []
        loop.call_soon_threadsafe, call = lambda work: calls.append(work) or call(work), loop.call_soon_threadsafe
        thread = threading.Thread(target=lambda: [queue.put(number) for number in range(100)])
        thread.start()
        thread.join()  # the loop can't look meanwhile
        await asyncio.sleep(0)
        assert taken == list(range(100)) and len(calls) == 1
        threads = [threading.Thread(target=lambda: [queue.put(1) for _ in range(2000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(60):
            while len(taken) < 8100:
                await asyncio.sleep(0)
        return queue

    asyncio.run(take()).put(1)  # a loop that has ended is not told
