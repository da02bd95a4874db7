"""Stores: blocks of sequences that have left, on their way to the disk.

They are written while they are in the pool, which holds them until all ranks have written them. Few are held at a time;
the others stay findable and evictable meanwhile, and those that are evicted before their turn aren't written.
"""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Columns
from dataclasses import dataclass
from typing import Any

from ...protocol.layer_groups import BlocksStored, DiskOrders, StoreBlocks, joined
from ...protocol.wire import column
from ..request import Sequence
from .blocks import BlockPool
from .group_memory import GroupMemory, KeysOfGroup
from .keys import derived_keys

LEAST_TOKENS = 128  # shorter prefixes are computed again sooner than they are worth a file
_SEGMENT_BYTES = 32 << 20  # that one order writes, and one file holds
_HELD_SHARE = 8  # at most one block of so many is held to be written, and as many stay free
_MOST_CHAINS = 64  # that wait to be written; the oldest are dropped


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


class Stores:
    def __init__(
        self, groups: Columns[GroupMemory[Any]], on_disk: Columns[KeysOfGroup], block_size: int, num_ranks: int
    ) -> None:
        self._groups = groups
        self._on_disk = on_disk
        self._block_size = block_size
        self._num_ranks = num_ranks
        self._stores: dict[int, Store] = {}
        self._storing: list[set[bytes]] = [set() for _ in groups]
        self._num_held = [0] * len(groups)
        self._chains: deque[Chain] = deque(maxlen=_MOST_CHAINS)
        self._number = 0  # of the newest order
        self._is_ending = False
        # For the next plan: blocks to be written, and group and key of the last block of each chain that was used.
        self._orders: list[StoreBlocks] = []
        self._used: list[tuple[int, bytes]] = []
        self.num_stored = 0  # blocks, since the start

    @property
    def has_orders(self) -> bool:
        return bool(self._orders or self._used)

    def add_orders(self, orders: DiskOrders) -> None:
        orders.stores, self._orders = self._orders, []
        orders.used += self._used
        self._used = []

    def note(self, sequence: Sequence) -> None:
        """Remember what a sequence leaves behind, to write it while it is in the pool."""
        keys = derived_keys(sequence)
        if len(keys) * self._block_size >= LEAST_TOKENS:
            self._chains.append(Chain(keys, [0] * len(self._groups), [b""] * len(self._groups)))

    def begin_step(self) -> None:
        """Order as much to be written as may be held, before the step being planned takes free blocks."""
        while self._chains and all(self._store(self._chains[0], number) for number in range(len(self._groups))):
            chain = self._chains.popleft()
            self._used.extend((number, key) for number, key in enumerate(chain.newest) if key)

    def end(self) -> None:
        """Order all that is left to be written: no step takes free blocks any more."""
        self._is_ending = True
        self.begin_step()

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
        self._orders.append(StoreBlocks(self._number, number, previous, joined(keys), column(block_ids)))

    def _room(self, number: int, pool: BlockPool) -> int:
        """How many more blocks may be held."""
        if self._is_ending:
            return pool.num_blocks
        share = max(1, pool.num_blocks // _HELD_SHARE)
        return min(share - self._num_held[number], pool.num_free - share)

    def _is_stored(self, number: int, key: bytes) -> bool:
        return key in self._on_disk[number] or key in self._storing[number]

    def take(self, answer: BlocksStored) -> None:
        store = self._stores[answer.number]
        store.missing -= 1
        if store.missing:
            return
        del self._stores[answer.number]
        self._groups[store.group].pool.release(store.block_ids)
        self._num_held[store.group] -= len(store.block_ids)
        self._storing[store.group].difference_update(store.keys)
        self.num_stored += sum(key in self._on_disk[store.group] for key in store.keys)

    def held_by(self, group: int) -> list[list[int]]:
        """The blocks that a group holds to be written."""
        return [store.block_ids for store in self._stores.values() if store.group == group]
