"""The rung of the memory ladder below CPU memory: blocks on the workers' disks (the option `prefix_cache_dir`).

Workers report which keys they have on disk. `disk_fetches.py` brings a prefix that only the disk has into the pool, and
`disk_stores.py` has blocks written that sequences leave behind; `../media/kept_rows.py` does both with the rows of
media. Nothing here changes an answer: a fetched block has the bits that computing gives, and one that isn't fetched in
time, or was damaged, is computed.
"""

import time
from collections.abc import Sequence as Columns
from typing import TYPE_CHECKING, Any

from ...protocol.layer_groups import (
    AboutDisk,
    BlocksFetched,
    BlocksStored,
    DiskOrders,
    KeysOnDisk,
    RowsFetched,
    joined,
    keys_in,
)
from ..request import Sequence
from .disk_fetches import Fetches
from .disk_stores import Stores
from .group_memory import GroupMemory, KeysOfGroup
from .time_to_live import Clock

if TYPE_CHECKING:
    from ..media.entries import Entries
    from ..media.kept_rows import KeptRows


class Disk:
    def __init__(
        self, groups: Columns[GroupMemory[Any]], block_size: int, num_ranks: int, clock: Clock = time.monotonic
    ) -> None:
        self._on_disk = [KeysOfGroup(num_ranks) for _ in groups]
        for group, keys in zip(groups, self._on_disk, strict=True):
            group.on_disk = keys
        self.fetches = Fetches(groups, self._on_disk, num_ranks, clock)
        self.stores = Stores(groups, self._on_disk, block_size, num_ranks)
        self.rows: KeptRows | None = None  # of a model that sees
        self._num_ranks = num_ranks
        self._clock = clock
        self._forgotten = b""

    def keep_rows(self, entries: "Entries") -> "KeptRows":
        """Keep the rows of these entries, too."""
        from ..media.kept_rows import KeptRows

        group = len(self._on_disk)
        self._on_disk.append(KeysOfGroup(self._num_ranks))
        self.rows = KeptRows(entries, self._on_disk[group], group, self._num_ranks, self._clock)
        return self.rows

    def take(self, message: AboutDisk) -> list[Sequence]:
        """Take in a rank's report; returns the sequences whose prefix has come."""
        match message:
            case BlocksFetched():
                return list(self.fetches.take(message))
            case BlocksStored():
                self.stores.take(message)
            case RowsFetched():
                if self.rows is not None:
                    self.rows.take(message)
            case KeysOnDisk():
                keys = self._on_disk[message.group]
                for key in keys_in(message.keys):
                    if message.gone:
                        keys.discard(key)
                    else:
                        keys.add(message.rank, key)
        return []

    def forget(self, keys: Columns[bytes]) -> None:
        """Remove these keys of all groups, on the disks as well: their content is wrong."""
        for on_disk in self._on_disk:
            for key in keys:
                on_disk.discard(key)
        self._forgotten += joined(keys)

    @property
    def has_orders(self) -> bool:
        if self.rows is not None and self.rows.has_orders:
            return True
        return bool(self.fetches.orders or self.stores.orders or self.stores.used or self._forgotten)

    def take_orders(self) -> DiskOrders | None:
        """The orders for the next plan, if there are any."""
        if not self.has_orders:
            return None
        orders = DiskOrders(self.stores.orders, self.fetches.orders, self.stores.used, self._forgotten)
        self.stores.orders, self.fetches.orders, self.stores.used, self._forgotten = [], [], [], b""
        if self.rows is not None:
            self.rows.add_orders(orders)
        return orders

    def let_in_late(self) -> list[Sequence]:
        """Give up what hasn't come for too long; returns the sequences that have waited outside the queue for it."""
        if self.rows is not None:
            self.rows.give_up_late()
        return list(self.fetches.let_in_late())

    @property
    def patience(self) -> float | None:
        """Seconds until something may be late; None if nobody waits."""
        of_blocks, of_rows = self.fetches.patience, None if self.rows is None else self.rows.patience
        return min((each for each in (of_blocks, of_rows) if each is not None), default=None)

    def held_by(self, group: int) -> list[list[int]]:
        """The blocks of a group that are being fetched or written."""
        return self.fetches.held_by(group) + self.stores.held_by(group)
