"""Fetches: prefixes on their way from the disk into free blocks of the pool, and the sequences that wait for them.

A sequence waits outside the queue, so others go on, and asks only once. If nothing has come for a while, it no longer
waits: the rest is computed, and what comes later can be found by others. Until then nobody waits for that disk.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Columns
from dataclasses import dataclass, field
from typing import Any

from ...protocol.layer_groups import BlocksFetched, DiskOrders, FetchBlocks, joined
from ...protocol.wire import column
from ..request import Sequence
from .full_blocks import in_pool
from .group_memory import Found, GroupMemory, KeysOfGroup
from .keys import derived_keys
from .time_to_live import Clock

PATIENCE = 1.0  # seconds without a fetched block, after which sequences no longer wait for the rest


@dataclass(slots=True)
class Fetch:
    """Blocks on their way from the disk into the pool."""

    sequence: Sequence  # whose blocks they are
    blocks: list[tuple[int, bytes, int]]  # group, key, block of the pool
    indexes: dict[bytes, int]  # of blocks in the sequence, by key
    held: list[list[int]]  # by group: what else of the prefix is in the pool, so that it stays there
    heard: list[int]  # by rank: for how many blocks it has answered
    are_there: list[bool]  # of each block, on the ranks that have answered
    since: float  # when the last answer came
    num_named: int = 0  # how many have been named or failed
    is_late: bool = False  # sequences wait no longer
    is_wanted: bool = True  # false: its adapter has been unloaded
    waiting: list[Sequence] = field(default_factory=list)

    def block_ids(self, group: int) -> list[int]:
        return [block for number, _, block in self.blocks if number == group]


class Fetches:
    def __init__(
        self, groups: Columns[GroupMemory[Any]], on_disk: Columns[KeysOfGroup], num_ranks: int, clock: Clock
    ) -> None:
        self._groups = groups
        self._on_disk = on_disk
        self._num_ranks = num_ranks
        self._clock = clock
        self._fetches: dict[int, Fetch] = {}
        self._pending: dict[Sequence, int] = {}  # sequences that wait, and for how many fetches
        self._number = 0  # of the newest order
        self._orders: list[FetchBlocks] = []  # for the next plan
        self.num_fetched = 0  # blocks, since the start

    @property
    def has_orders(self) -> bool:
        return bool(self._orders)

    def add_orders(self, orders: DiskOrders) -> None:
        orders.fetches, self._orders = self._orders, []

    def absent(self, sequence: Sequence, founds: Columns[Found]) -> list[tuple[int, bytes]]:
        """The group and key of each found block that only the disk has."""
        return [
            (number, key)
            for number, (group, found) in enumerate(zip(self._groups, founds, strict=True))
            for key in group.lacking(sequence, found)
            if not group.second_tier.has(key)
        ]

    def begin(self, sequence: Sequence, founds: Columns[Found], absent: list[tuple[int, bytes]]) -> bool:
        """Let the sequence wait until these blocks are in the pool, which has room for them; False if the disk is too
        slow to wait for. A sequence asks only once."""
        sequence.looks_on_disk = False
        if any(fetch.is_late for fetch in self._fetches.values()):
            return False
        wanted = set(absent)
        others = [fetch for fetch in self._fetches.values() if any(each[:2] in wanted for each in fetch.blocks)]
        coming = {each[:2] for fetch in others for each in fetch.blocks}
        held = [in_pool(found) for found in founds]
        for group, block_ids in zip(self._groups, held, strict=True):
            group.pool.hold(block_ids)
        if fresh := [each for each in absent if each not in coming]:
            others.append(self._begun(sequence, fresh))
        for own, block_ids in zip(others[-1].held, held, strict=True):
            own += block_ids
        for fetch in others:
            fetch.waiting.append(sequence)
        self._pending[sequence] = len(others)
        return True

    def _begun(self, sequence: Sequence, fresh: list[tuple[int, bytes]]) -> Fetch:
        blocks = [(number, key, self._groups[number].pool.allocate(1)[0]) for number, key in fresh]
        self._number += 1
        groups, keys, block_ids = zip(*blocks, strict=True)
        self._orders.append(FetchBlocks(self._number, column(groups), joined(keys), column(block_ids)))
        held: list[list[int]] = [[] for _ in self._groups]
        indexes = {key: index for index, key in enumerate(derived_keys(sequence))}
        heard = [0] * self._num_ranks
        fetch = Fetch(sequence, blocks, indexes, held, heard, [True] * len(blocks), self._clock())
        self._fetches[self._number] = fetch
        return fetch

    def take(self, answer: BlocksFetched) -> Iterator[Sequence]:
        """Take in a rank's answer; yields the sequences that have waited for it."""
        fetch = self._fetches[answer.number]
        for is_there in answer.are_there:
            fetch.are_there[fetch.heard[answer.rank]] &= bool(is_there)
            fetch.heard[answer.rank] += 1
        fetch.since = self._clock()
        if min(fetch.heard) < len(fetch.blocks):
            if fetch.is_late:
                self._name(fetch)
            return
        del self._fetches[answer.number]
        self._name(fetch)
        for number, group in enumerate(self._groups):
            group.pool.release([*fetch.held[number], *fetch.block_ids(number)])
        yield from self._no_longer_waiting(fetch)

    def give_up_late(self) -> Iterator[Sequence]:
        """Yield the sequences that have waited too long; what has arrived until now can be found."""
        for fetch in self._fetches.values():
            if not fetch.is_late and self._clock() - fetch.since >= PATIENCE:
                fetch.is_late = True
                self._name(fetch)
                yield from self._no_longer_waiting(fetch)

    def forget_where(self, is_gone: Callable[[bytes], bool]) -> None:
        """Let nobody find what comes under keys for which this is true."""
        for fetch in self._fetches.values():
            fetch.is_wanted = fetch.is_wanted and not any(is_gone(key) for _, key, _ in fetch.blocks)

    @property
    def patience(self) -> float | None:
        """Seconds until a fetch may be late; None if no sequence waits."""
        waited = [fetch.since for fetch in self._fetches.values() if not fetch.is_late]
        return max(0.0, min(waited) + PATIENCE - self._clock()) if waited else None

    def __len__(self) -> int:
        """How many sequences wait."""
        return sum(not sequence.has_ended for sequence in self._pending)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._pending

    def _name(self, fetch: Fetch) -> None:
        """Let others find the blocks that all ranks have."""
        for index in range(fetch.num_named, min(fetch.heard)):
            number, key, block = fetch.blocks[index]
            if fetch.are_there[index] and not fetch.is_wanted:
                continue
            if fetch.are_there[index]:
                self._groups[number].name(fetch.sequence, fetch.indexes[key], block, key)
                self.num_fetched += 1
            else:
                self._on_disk[number].discard(key)
        fetch.num_named = min(fetch.heard)

    def _no_longer_waiting(self, fetch: Fetch) -> Iterator[Sequence]:
        for sequence in fetch.waiting:
            self._pending[sequence] -= 1
            if not self._pending[sequence]:
                del self._pending[sequence]
                if not sequence.has_ended:
                    yield sequence
        fetch.waiting = []

    def held_by(self, group: int) -> list[list[int]]:
        """The blocks that a group holds for fetches."""
        held = []
        for fetch in self._fetches.values():
            held += [fetch.block_ids(group), *([block] for block in fetch.held[group])]
        return held
