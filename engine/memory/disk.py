"""The rung of the memory ladder below CPU memory: blocks on the workers' disks (the option `prefix_cache_dir`).

Workers report which keys they have on disk. A prefix that only the disk has is fetched into free blocks of the pool
while its sequence waits outside the queue and others go on; then it is found there like any other. Blocks of sequences
that have left are written while they are still in the pool: they are held until all ranks have written them.

Nothing here changes an answer: a fetched block has the bits that computing gives, and one that isn't fetched in time,
or was damaged, is computed. The pool decides about both, as for blocks that other requests have left.
"""

import time
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Columns
from dataclasses import dataclass, field
from typing import Any

from ...protocol.layer_groups import (
    BlocksFetched,
    BlocksStored,
    DiskOrders,
    FetchBlocks,
    KeysOnDisk,
    StoreBlocks,
    joined,
    keys_in,
)
from ...protocol.messages import column
from ..request import Sequence
from .blocks import BlockPool
from .full_blocks import in_pool
from .group_memory import Found, GroupMemory
from .keys import derived_keys
from .time_to_live import Clock

PATIENCE = 1.0  # seconds without a fetched block, after which sequences no longer wait for the rest
LEAST_TOKENS = 128  # shorter prefixes are computed again sooner than they are worth a file
_SEGMENT_BYTES = 32 << 20  # that one order writes, and one file holds
_HELD_SHARE = 8  # at most one block of so many is held to be written, and as many stay free
_MOST_CHAINS = 64  # that wait to be written; the oldest are dropped


class KeysOfGroup:
    """The keys that all ranks have on disk for one group of layers."""

    def __init__(self, num_ranks: int) -> None:
        self._all = (1 << num_ranks) - 1
        self._ranks: dict[bytes, int] = {}  # a bit for each rank that has the key

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._ranks.get(key) == self._all

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, rank: int, key: bytes) -> None:
        self._ranks[key] = self._ranks.get(key, 0) | 1 << rank

    def discard(self, key: bytes) -> None:
        self._ranks.pop(key, None)


@dataclass(slots=True)
class Fetch:
    """Blocks on their way from the disk into the pool."""

    blocks: list[tuple[int, bytes, int]]  # group, key, block of the pool
    held: list[list[int]]  # by group: what else of the prefix is in the pool, so that it stays there
    heard: list[int]  # by rank: for how many blocks it has answered
    are_there: list[bool]  # of each block, on the ranks that have answered
    since: float  # when the last answer came
    num_named: int = 0  # how many have been named or failed
    is_late: bool = False  # sequences wait no longer
    waiting: list[Sequence] = field(default_factory=list)

    def block_ids(self, group: int) -> list[int]:
        return [block for number, _, block in self.blocks if number == group]


@dataclass(slots=True)
class Chain:
    """The keys of a sequence that has left, and how far its blocks have been looked at in each group."""

    keys: list[bytes]
    next: list[int]
    newest: list[bytes]  # the last key that was on disk before; empty if none was


@dataclass(slots=True)
class Store:
    """Blocks that are held until all ranks have written them."""

    group: int
    keys: list[bytes]
    block_ids: list[int]
    missing: int  # ranks that have not answered


class Disk:
    def __init__(
        self, groups: Columns[GroupMemory[Any]], block_size: int, num_ranks: int, clock: Clock = time.monotonic
    ) -> None:
        self._groups = groups
        self._block_size = block_size
        self._num_ranks = num_ranks
        self._clock = clock
        self._on_disk = [KeysOfGroup(num_ranks) for _ in groups]
        for group, keys in zip(groups, self._on_disk):
            group.on_disk = keys
        self._number = 0  # of the newest order
        self._orders = DiskOrders()
        self._fetches: dict[int, Fetch] = {}
        self._pending: dict[Sequence, int] = {}  # sequences that wait, and for how many fetches
        self._stores: dict[int, Store] = {}
        self._storing: list[set[bytes]] = [set() for _ in groups]
        self._num_held = [0] * len(groups)
        self._chains: deque[Chain] = deque(maxlen=_MOST_CHAINS)
        self.num_stored = self.num_fetched = 0  # blocks, since the start

    # --- fetching ---------------------------------------------------------------------------------------------------

    def absent(self, sequence: Sequence, founds: Columns[Found]) -> list[tuple[int, bytes]]:
        """The group and key of each found block that only the disk has."""
        return [
            (number, key)
            for number, (group, found) in enumerate(zip(self._groups, founds, strict=True))
            for key in group.lacking(sequence, found)
            if not group.second_tier.has(key)
        ]

    def fetch(self, sequence: Sequence, founds: Columns[Found], absent: list[tuple[int, bytes]]) -> bool:
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
            others.append(self._begun(fresh))
        for own, block_ids in zip(others[-1].held, held, strict=True):
            own += block_ids
        for fetch in others:
            fetch.waiting.append(sequence)
        self._pending[sequence] = len(others)
        return True

    def _begun(self, fresh: list[tuple[int, bytes]]) -> Fetch:
        blocks = [(number, key, self._groups[number].pool.allocate(1)[0]) for number, key in fresh]
        self._number += 1
        groups, keys, block_ids = zip(*blocks, strict=True)
        self._orders.fetches.append(FetchBlocks(self._number, column(groups), joined(keys), column(block_ids)))
        held: list[list[int]] = [[] for _ in self._groups]
        fetch = Fetch(blocks, held, [0] * self._num_ranks, [True] * len(blocks), self._clock())
        self._fetches[self._number] = fetch
        return fetch

    def take_fetched(self, answer: BlocksFetched) -> Iterator[Sequence]:
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

    def let_in_late(self) -> Iterator[Sequence]:
        """Yield the sequences that have waited too long; what has arrived until now can be found."""
        for fetch in self._fetches.values():
            if not fetch.is_late and self._clock() - fetch.since >= PATIENCE:
                fetch.is_late = True
                self._name(fetch)
                yield from self._no_longer_waiting(fetch)

    @property
    def patience(self) -> float | None:
        """Seconds until a fetch may be late; None if no sequence waits."""
        waited = [fetch.since for fetch in self._fetches.values() if not fetch.is_late]
        return max(0.0, min(waited) + PATIENCE - self._clock()) if waited else None

    @property
    def num_waiting(self) -> int:
        return sum(not sequence.has_ended for sequence in self._pending)

    def is_awaited_by(self, sequence: Sequence) -> bool:
        return sequence in self._pending

    def _name(self, fetch: Fetch) -> None:
        """Let others find the blocks that all ranks have."""
        for index in range(fetch.num_named, min(fetch.heard)):
            number, key, block = fetch.blocks[index]
            if fetch.are_there[index]:
                self._groups[number].pool.name(block, key)
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

    # --- storing ----------------------------------------------------------------------------------------------------

    def note(self, sequence: Sequence) -> None:
        """Remember what a sequence leaves behind, to write it while it is in the pool."""
        keys = derived_keys(sequence)
        if len(keys) * self._block_size >= LEAST_TOKENS:
            self._chains.append(Chain(keys, [0] * len(self._groups), [b""] * len(self._groups)))

    def begin_step(self) -> None:
        """Order as much to be written as may be held, before the step being planned takes free blocks."""
        while self._chains and all(self._store(self._chains[0], number) for number in range(len(self._groups))):
            chain = self._chains.popleft()
            self._orders.used.extend((number, key) for number, key in enumerate(chain.newest) if key)

    def _store(self, chain: Chain, number: int) -> bool:
        """Store what one group has of a chain; False if more of it is left."""
        group = self._groups[number]
        while chain.next[number] < len(chain.keys):
            index = chain.next[number]
            room = min(self._room(number, group.pool), max(1, _SEGMENT_BYTES // max(1, group.plan.block_bytes)))
            key = chain.keys[index]
            if self._is_stored(number, key):
                if key in self._on_disk[number]:
                    chain.newest[number] = key
                chain.next[number] += 1
            elif (block := group.pool.find(key)) is None:
                # Without this block of a chain, later ones are of use only where layers don't read it.
                chain.next[number] = len(chain.keys) if group.plan.kind == "full" else index + 1
            elif room <= 0:
                return False
            else:
                run = [(key, block), *self._following(chain, number, room - 1)]
                self._hold(number, chain.keys[index - 1] if index else b"", *map(list, zip(*run, strict=True)))
        return True

    def _following(self, chain: Chain, number: int, most: int) -> Iterator[tuple[bytes, int]]:
        """The blocks after the next one, as far as they are in the pool and not on disk."""
        first = chain.next[number] + 1
        for key in chain.keys[first : first + most]:
            if self._is_stored(number, key) or (block := self._groups[number].pool.find(key)) is None:
                return
            yield key, block

    def _hold(self, number: int, previous: bytes, keys: list[bytes], block_ids: list[int]) -> None:
        self._groups[number].pool.hold(block_ids)
        self._num_held[number] += len(block_ids)
        self._storing[number].update(keys)
        self._number += 1
        self._stores[self._number] = Store(number, keys, block_ids, self._num_ranks)
        order = StoreBlocks(self._number, number, previous, joined(keys), column(block_ids))
        self._orders.stores.append(order)

    def _room(self, number: int, pool: BlockPool) -> int:
        """How many more blocks may be held."""
        share = max(1, pool.num_blocks // _HELD_SHARE)
        return min(share - self._num_held[number], pool.num_free - share)

    def _is_stored(self, number: int, key: bytes) -> bool:
        return key in self._on_disk[number] or key in self._storing[number]

    def take_stored(self, answer: BlocksStored) -> None:
        store = self._stores[answer.number]
        store.missing -= 1
        if store.missing:
            return
        del self._stores[answer.number]
        self._groups[store.group].pool.release(store.block_ids)
        self._num_held[store.group] -= len(store.block_ids)
        self._storing[store.group].difference_update(store.keys)
        self.num_stored += sum(key in self._on_disk[store.group] for key in store.keys)

    def take_keys(self, answer: KeysOnDisk) -> None:
        keys = self._on_disk[answer.group]
        for key in keys_in(answer.keys):
            if answer.gone:
                keys.discard(key)
            else:
                keys.add(answer.rank, key)

    def forget(self, keys: Columns[bytes]) -> None:
        """Remove these keys of all groups, on the disks as well: their content is wrong."""
        for on_disk in self._on_disk:
            for key in keys:
                on_disk.discard(key)
        self._orders.forgotten += joined(keys)

    # --- for plans and checks ---------------------------------------------------------------------------------------

    @property
    def has_orders(self) -> bool:
        return self._orders != DiskOrders()

    def take_orders(self) -> DiskOrders | None:
        """The orders for the next plan, if there are any."""
        if not self.has_orders:
            return None
        orders, self._orders = self._orders, DiskOrders()
        return orders

    def held_by(self, number: int) -> list[list[int]]:
        """The blocks of a group that are being fetched or written."""
        held = [store.block_ids for store in self._stores.values() if store.group == number]
        for fetch in self._fetches.values():
            held += [fetch.block_ids(number), *([block] for block in fetch.held[number])]
        return held
