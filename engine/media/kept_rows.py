"""Rows of media on the workers' disks (the option `prefix_cache_dir`): they are fetched instead of being encoded.

A new entry whose rows are on disk is filled from there, beside the steps; until then its sequence waits for it as it
does for the encoder. If the rows were damaged, or nothing comes for a while, the entry is encoded. What was encoded is
written unless its entry is dropped before that.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from ...protocol.layer_groups import KEY_BYTES, DiskOrders, FetchRows, RowsFetched, StoreRows, joined
from ...records import dataclass
from ..memory.disk_fetches import PATIENCE
from ..memory.group_memory import KeysOfGroup
from ..memory.time_to_live import Clock
from .entries import Entries, Entry, Key


def rows_key(key: Key) -> bytes:
    """The key of a medium's rows on disk: as with blocks, who doesn't know the `cache_salt` doesn't find them."""
    return blake2b(msgspec.msgpack.encode(key), digest_size=KEY_BYTES, person=b"penstock rows").digest()


@dataclass(slots=True)
class Fetch:
    """Rows on their way from the disk into an entry."""

    entry: Entry
    missing: int  # ranks that have not answered
    since: float
    is_there: bool = True  # on the ranks that have answered
    is_late: bool = False  # nobody waits for it


class KeptRows:
    def __init__(self, entries: Entries, on_disk: KeysOfGroup, group: int, num_ranks: int, clock: Clock) -> None:
        """`on_disk`: the keys, which orders call those of this group."""
        self._entries = entries
        self._on_disk = on_disk
        self._group = group
        self._num_ranks = num_ranks
        self._clock = clock
        self._fetches: dict[int, Fetch] = {}
        self._number = 0  # of the newest fetch
        # For the next plan:
        self.fetches: list[FetchRows] = []
        self.stores: list[StoreRows] = []
        self.used: list[tuple[int, bytes]] = []
        self.forgotten: list[bytes] = []
        self.num_fetched = 0  # media, since the start

    @property
    def num_kept(self) -> int:
        """How many media have their rows on disk."""
        return len(self._on_disk)

    @property
    def has_orders(self) -> bool:
        return bool(self.fetches or self.stores or self.used or self.forgotten)

    def add_orders(self, orders: DiskOrders) -> None:
        orders.stored_rows, orders.fetched_rows = self.stores, self.fetches
        orders.used += self.used
        orders.forgotten += joined(self.forgotten)
        self.stores, self.fetches, self.used, self.forgotten = [], [], [], []

    def look_for(self, entry: Entry, step: int) -> None:
        """Fetch the rows of an entry that a step needs, if only the disk has them; that is tried once."""
        if entry.looks_on_disk:
            entry.looks_on_disk = False
            if entry.done == 0:
                self._fetch(entry, step)

    def note_used(self, entry: Entry) -> None:
        if (key := rows_key(entry.key)) in self._on_disk:
            self.used.append((self._group, key))

    def _fetch(self, entry: Entry, step: int) -> None:
        key = rows_key(entry.key)
        if key not in self._on_disk or any(fetch.is_late for fetch in self._fetches.values()):
            return
        entry.is_coming = True
        entry.used_in = step
        self._number += 1
        self.fetches.append(FetchRows(self._number, entry.number, entry.num_rows, key))
        self._fetches[self._number] = Fetch(entry, self._num_ranks, self._clock())

    def note_encoded(self, entry: Entry) -> None:
        """Have the rows written that a planned step completes."""
        key = rows_key(entry.key)
        if self._entries.is_findable(entry) and key not in self._on_disk:
            self.stores.append(StoreRows(entry.number, key))

    def forget(self, keys: Iterable[Key]) -> None:
        """Remove these from the disk as well: their content is wrong."""
        for key in map(rows_key, keys):
            self._on_disk.discard(key)
            self.stores = [store for store in self.stores if store.key != key]
            self.forgotten.append(key)

    def take(self, answer: RowsFetched) -> None:
        fetch = self._fetches[answer.number]
        fetch.is_there = fetch.is_there and answer.is_there
        fetch.missing -= 1
        if fetch.missing:
            return
        del self._fetches[answer.number]
        entry = fetch.entry
        if not entry.is_coming:  # workers have ended the fetch: the entry was dropped, or is encoded
            return
        entry.is_coming = False
        if fetch.is_there:
            entry.done = entry.work
            self.num_fetched += 1
        else:
            self._on_disk.discard(rows_key(entry.key))

    @property
    def is_awaited(self) -> bool:
        """Whether a sequence may wait for rows on their way."""
        return any(fetch.entry.is_coming for fetch in self._fetches.values())

    def give_up_late(self) -> tuple[()]:
        """Have those encoded that have been waited for too long. Their sequences wait in the queue."""
        for fetch in self._waited_for():
            if self._clock() - fetch.since >= PATIENCE:
                fetch.is_late, fetch.entry.is_coming = True, False
        return ()

    @property
    def patience(self) -> float | None:
        """Seconds until a fetch may be late; None if nobody waits."""
        since = [fetch.since for fetch in self._waited_for()]
        return max(0.0, min(since) + PATIENCE - self._clock()) if since else None

    def _waited_for(self) -> Iterator[Fetch]:
        return (fetch for fetch in self._fetches.values() if not fetch.is_late)
