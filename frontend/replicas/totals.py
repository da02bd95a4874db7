"""The statistics of several trees as those of one: their sums, and each tree's own."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import msgspec

from ...protocol.errors import PenstockError
from ...protocol.stats import Stats

NONE = Stats(0, 0, 0, 0, 0, 0, 0, 0, 0)  # of a tree that is being started again


# Fields that aren't summed: options, which all trees have alike, and names.
_OPTIONS = ("block_size", "shares_prefixes", "max_loras")
_NAMES = ("running_loras", "waiting_loras")
_OWN = ("query", "replicas")


def total(each: Sequence[Stats]) -> Stats:
    """The sums; lists are added up position by position."""
    summed = (name for name in Stats.__struct_fields__ if name not in (*_OPTIONS, *_NAMES, *_OWN))
    found = {name: _sum([getattr(stats, name) for stats in each]) for name in summed}
    found |= {name: sorted({one for stats in each for one in getattr(stats, name)}) for name in _NAMES}
    there = next((stats for stats in each if stats is not NONE), NONE)
    found |= {name: getattr(there, name) for name in _OPTIONS}
    return msgspec.structs.replace(NONE, **found, replicas=list(each))


def _sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], list):
        return [sum(column) for column in zip_longest(*values, fillvalue=0)]
    return sum(values)


def absent() -> "Future[Stats]":
    """The answer of a tree that isn't there."""
    answer = Future[Stats]()
    answer.set_result(NONE)
    return answer


def total_of(answers: Sequence["Future[Stats]"]) -> "Future[Stats]":
    """The sums, once all trees have answered or died."""
    whole, lock = Future[Stats](), threading.Lock()
    num_left = len(answers)

    def arrived(_: "Future[Stats]") -> None:
        nonlocal num_left
        with lock:
            num_left -= 1
            is_last = num_left == 0
        if is_last and whole.set_running_or_notify_cancel():
            whole.set_result(total([_stats_of(each) for each in answers]))

    for each in answers:
        whole.add_done_callback(lambda _, each=each: each.cancel())  # type: ignore[misc]
        each.add_done_callback(arrived)
    return whole


def _stats_of(answer: "Future[Stats]") -> Stats:
    with suppress(PenstockError):
        if not answer.cancelled():
            return answer.result()
    return NONE
