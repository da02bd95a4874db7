"""Computes the next few of a list of things while the first is awaited, each in a thread of its own."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(work: Callable[[Item], Result], items: Sequence[Item], count: int) -> Iterator[Result]:
    """The results in order, up to `count` at a time. Who stops reading has begun no more than these."""
    rest = iter(items)
    begun: deque[Future[Result]] = deque()
    while True:
        begun += [_begun(work, item) for item in islice(rest, count - len(begun))]
        if not begun:
            return
        yield begun.popleft().result()


def _begun(work: Callable[[Item], Result], item: Item) -> "Future[Result]":
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(item))
        except BaseException as error:
            future.set_exception(error)

    # A daemon thread: what takes long holds up no end of the process.
    threading.Thread(target=run, name="penstock-ahead", daemon=True).start()
    return future
