"""The statistics of several trees as those of one: their sums, and each tree's own.

A tree that is started again counts from 0. What its earlier lives have counted stays in the sums, as far as somebody
has asked for it: whoever reads counters takes a fall for a restart of the whole, and counts everything twice.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import zip_longest
from operator import add
from typing import Any

import msgspec

from ...protocol.errors import PenstockError
from ...protocol.stats import Stats

NONE = Stats(0, 0, 0, 0, 0, 0, 0, 0, 0)  # of a tree that is being started again

Answers = Sequence["tuple[Life, Future[Stats]] | None"]  # of each tree; None: it isn't there
Counts = dict[str, Any]  # by the name of the counter
Life = tuple[int, int]  # a tree's number, and how many lives it has had before


# Fields that only grow in a tree's life. Lists are counters by position.
COUNTERS = (
    *("steps", "prompt_tokens", "cached_tokens", "generated_tokens", "preemptions", "step_seconds"),
    *("saved_blocks", "loaded_blocks", "stored_blocks", "fetched_blocks", "encoded_media", "fetched_media"),
    *("drafts", "draft_tokens", "accepted_tokens", "accepted_by_position", "step_tokens", "steps_by_tokens"),
)
# Fields that aren't summed: options, which all trees have alike, and names.
_OPTIONS = ("block_size", "shares_prefixes", "max_loras")
_NAMES = ("running_loras", "waiting_loras")
_OWN = ("query", "replicas")


class Totals:
    """Remembers what each tree has counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = _counts(NONE)  # sums over all lives that have ended
        self._latest: dict[int, tuple[int, Counts]] = {}  # the newest life of each tree that was heard of

    def of(self, answers: Answers) -> "Future[Stats]":
        """The sums, once all trees have answered or died."""
        whole: Future[Stats] = Future()
        asked = [answer for _, answer in filter(None, answers)]
        num_left = len(asked)

        def arrived(_: "Future[Stats]") -> None:
            nonlocal num_left
            with self._lock:
                num_left -= 1
                is_last = num_left == 0
            if is_last and whole.set_running_or_notify_cancel():
                whole.set_result(self._summed(answers))

        for each in asked:
            whole.add_done_callback(lambda _, each=each: each.cancel())  # type: ignore[misc]
            each.add_done_callback(arrived)
        if not asked:
            whole.set_result(self._summed(answers))
        return whole

    def _summed(self, answers: Answers) -> Stats:
        each = [NONE if answer is None else _stats_of(answer[1]) for answer in answers]
        with self._lock:
            for answer, stats in zip(answers, each):
                if answer is not None and stats is not NONE:
                    self._note(answer[0], _counts(stats))
            counted = [self._ended, *(counts for _, counts in self._latest.values())]
        return total(each, counted)

    def _note(self, life: Life, counts: Counts) -> None:
        number, lives = life
        newest, before = self._latest.get(number, (lives, _counts(NONE)))
        if lives < newest:
            return  # the answer has been overtaken by one of a later life
        if lives > newest:
            self._ended = _merged(add, self._ended, before)
        else:
            counts = _merged(max, counts, before)  # it may have been overtaken by another
        self._latest[number] = lives, counts


def total(each: Sequence[Stats], counted: Sequence[Counts] | None = None) -> Stats:
    """The sums; lists are added up position by position. `counted` is what counters have, if not these statistics."""
    gauges = (name for name in Stats.__struct_fields__ if name not in (*COUNTERS, *_OPTIONS, *_NAMES, *_OWN))
    found = {name: _sum([getattr(stats, name) for stats in each]) for name in gauges}
    counted = [_counts(stats) for stats in each] if counted is None else counted
    found |= {name: _sum([counts[name] for counts in counted]) for name in COUNTERS}
    found |= {name: sorted({one for stats in each for one in getattr(stats, name)}) for name in _NAMES}
    there = next((stats for stats in each if stats is not NONE), NONE)
    found |= {name: getattr(there, name) for name in _OPTIONS}
    return msgspec.structs.replace(NONE, **found, replicas=list(each))


def _counts(stats: Stats) -> Counts:
    return {name: getattr(stats, name) for name in COUNTERS}


def _merged(pick: Callable[[Any, Any], Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> Counts:
    return {name: _by_position(pick, one[name], other[name]) for name in COUNTERS}


def _by_position(pick: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if isinstance(one, list):
        return [pick(*pair) for pair in zip_longest(one, other, fillvalue=0)]
    return pick(one, other)


def _sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], list):
        return [sum(column) for column in zip_longest(*values, fillvalue=0)]
    return sum(values)


def _stats_of(answer: "Future[Stats]") -> Stats:
    with suppress(PenstockError):
        if not answer.cancelled():
            return answer.result()
    return NONE
