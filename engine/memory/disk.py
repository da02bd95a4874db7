"""The rung of the memory ladder below CPU memory: blocks on the workers' disks (the option `prefix_cache_dir`).

Workers report which keys they have on disk. `disk_fetches.py` brings a prefix that only the disk has into the pool, and
`disk_stores.py` has blocks written that sequences leave behind; `../media/kept_rows.py` does both with the rows of
media. Nothing here changes an answer: a fetched block has the bits that computing gives, and one that isn't fetched in
time, or was damaged, is computed.
"""

import time
from collections.abc import Iterable
from collections.abc import Sequence as Columns
from typing import TYPE_CHECKING, Any, Protocol

from ...protocol.layer_groups import (
    AboutDisk,
    BlocksFetched,
    BlocksStored,
    DiskOrders,
    KeysOnDisk,
    RowsFetched,
    joined,
    keys_in,
    media_group,
)
from ..request import Sequence
from .disk_fetches import Fetches
from .disk_stores import Stores
from .group_memory import GroupMemory, KeysOfGroup
from .time_to_live import Clock

if TYPE_CHECKING:
    from ..media.entries import Entries
    from ..media.kept_rows import KeptRows


class Ordering(Protocol):
    """A part that has orders for the workers."""

    @property
    def has_orders(self) -> bool:
        """Whether there are any for the next plan."""

    def add_orders(self, orders: DiskOrders) -> None:
        """Move all of them into a plan's."""


class Fetching(Ordering, Protocol):
    """A part that others wait for."""

    @property
    def patience(self) -> float | None:
        """Seconds until something may be late; None if nobody waits."""

    def give_up_late(self) -> Iterable[Sequence]:
        """Wait no longer for what is late. Returns the sequences that have waited outside the queue for it."""


class Disk:
    def __init__(
        self, groups: Columns[GroupMemory[Any]], block_size: int, num_ranks: int, clock: Clock = time.monotonic
    ) -> None:
        self._on_disk = [KeysOfGroup(num_ranks) for _ in groups]
        for group, keys in zip(groups, self._on_disk, strict=True):
            group.on_disk = keys
        self.fetches = Fetches(groups, self._on_disk, num_ranks, clock)
        self.stores = Stores(groups, self._on_disk, block_size, num_ranks)
        self._rows: KeptRows | None = None  # of a model that sees
        self._fetching: list[Fetching] = [self.fetches]
        self._ordering: list[Ordering] = [self.fetches, self.stores]
        self._num_ranks = num_ranks
        self._clock = clock
        self._forgotten = b""

    def keep_rows(self, entries: "Entries") -> "KeptRows":
        """Keep the rows of these entries, too."""
        from ..media.kept_rows import KeptRows

        group = media_group(len(self._on_disk))
        self._on_disk.append(KeysOfGroup(self._num_ranks))
        self._rows = rows = KeptRows(entries, self._on_disk[group], group, self._num_ranks, self._clock)
        self._fetching.append(rows)
        self._ordering.append(rows)
        return rows

    def take(self, message: AboutDisk) -> list[Sequence]:
        """Take in a rank's report; returns the sequences whose prefix has come."""
        match message:
            case BlocksFetched():
                return list(self.fetches.take(message))
            case BlocksStored():
                self.stores.take(message)
            case RowsFetched():
                if self._rows is not None:
                    self._rows.take(message)
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
        return bool(self._forgotten) or any(part.has_orders for part in self._ordering)

    def take_orders(self) -> DiskOrders | None:
        """The orders for the next plan, if there are any."""
        if not self.has_orders:
            return None
        orders, self._forgotten = DiskOrders(forgotten=self._forgotten), b""
        for part in self._ordering:
            part.add_orders(orders)
        return orders

    def let_in_late(self) -> list[Sequence]:
        """Give up what hasn't come for too long; returns the sequences that have waited outside the queue for it."""
        return [sequence for part in self._fetching for sequence in part.give_up_late()]

    @property
    def patience(self) -> float | None:
        """Seconds until something may be late; None if nobody waits."""
        return min((each for part in self._fetching if (each := part.patience) is not None), default=None)

    def held_by(self, group: int) -> list[list[int]]:
        """The blocks of a group that are being fetched or written."""
        return self.fetches.held_by(group) + self.stores.held_by(group)
