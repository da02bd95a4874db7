"""Disks of a worker without a model: what they are given, they answer later, and they may lose any of it.

A block's content is taken when its order is answered, and a fetched block is filled then: so an engine that lets
anybody overwrite or read it before is found out by the worker's own checks.
"""

import random
from collections import deque
from typing import Any

from penstock.engine.scheduler import Scheduler
from penstock.protocol.layer_groups import (
    BlocksFetched,
    BlocksStored,
    DiskOrders,
    FetchBlocks,
    FetchRows,
    KeysOnDisk,
    RowsFetched,
    StoreBlocks,
    StoreRows,
    joined,
    keys_in,
)
from penstock.protocol.wire import values
from penstock.worker.stand_in.runner import StandInWorker

Contents = dict[tuple[int, bytes], list[Any]]  # by group and key
Order = StoreBlocks | FetchBlocks | StoreRows | FetchRows


class DiskModel:
    losses = 0.1  # the share of fetched blocks that aren't there any more

    def __init__(self, num_ranks: int, worker: StandInWorker, chance: random.Random) -> None:
        self.kept: Contents = {}
        self.kept_rows: dict[bytes, int] = {}  # what they stand for
        self.num_orders = 0
        self._num_ranks = num_ranks
        self._worker = worker
        self._chance = chance
        self._work: deque[tuple[int, Order]] = deque()  # a rank, and what it has to do

    def begin_with(self, other: "DiskModel", scheduler: Scheduler) -> None:
        """Begin with what another has, and report it, as ranks do at the start."""
        self.kept, self.kept_rows = dict(other.kept), dict(other.kept_rows)
        for rank in range(self._num_ranks):
            for group, key in [*self.kept, *((self._group_of_rows, key) for key in self.kept_rows)]:
                scheduler.arrivals.take_from_disk(KeysOnDisk(rank, group, key))

    @property
    def _group_of_rows(self) -> int:
        return len(self._worker.groups)

    def take(self, orders: DiskOrders) -> None:
        for order in (*orders.stores, *orders.fetches, *orders.stored_rows, *orders.fetched_rows):
            self.num_orders += 1
            self._work += [(rank, order) for rank in range(self._num_ranks)]
        for key in keys_in(orders.forgotten):
            self.kept_rows.pop(key, None)
            for group in range(len(self._worker.groups)):
                self.kept.pop((group, key), None)

    def answer_some(self, scheduler: Scheduler) -> None:
        while self._work and self._chance.random() < 0.3:
            self.answer(scheduler)

    def answer(self, scheduler: Scheduler) -> bool:
        """Answer the oldest order that isn't answered; False if there is none."""
        if not self._work:
            return False
        rank, order = self._work.popleft()
        match order:
            case StoreBlocks():
                self._store(rank, order, scheduler)
            case FetchBlocks():
                self._fetch(rank, order, scheduler)
            case StoreRows():
                self._store_rows(rank, order, scheduler)
            case FetchRows():
                self._fetch_rows(rank, order, scheduler)
        return True

    def _store_rows(self, rank: int, order: StoreRows, scheduler: Scheduler) -> None:
        content = self._worker.media.content(order.entry)
        if content is not None:  # else it was dropped before
            self.kept_rows[order.key] = content
            scheduler.arrivals.take_from_disk(KeysOnDisk(rank, self._group_of_rows, order.key))

    def _fetch_rows(self, rank: int, order: FetchRows, scheduler: Scheduler) -> None:
        is_there = order.key in self.kept_rows and self._chance.random() >= self.losses
        is_there = is_there and self._worker.media.fill(order.entry, self.kept_rows[order.key])
        scheduler.arrivals.take_from_disk(RowsFetched(rank, order.number, is_there))

    def _store(self, rank: int, order: StoreBlocks, scheduler: Scheduler) -> None:
        keys = keys_in(order.keys)
        for key, block in zip(keys, values(order.block_ids), strict=True):
            self.kept[order.group, key] = list(self._slice(order.group, block))
        scheduler.arrivals.take_from_disk(KeysOnDisk(rank, order.group, joined(keys)))
        scheduler.arrivals.take_from_disk(BlocksStored(rank, order.number))

    def _fetch(self, rank: int, order: FetchBlocks, scheduler: Scheduler) -> None:
        are_there = bytearray()
        for group, key, block in zip(values(order.groups), keys_in(order.keys), values(order.block_ids), strict=True):
            is_there = (group, key) in self.kept and self._chance.random() >= self.losses
            if is_there:
                contents, width = self._worker.groups[group].contents, self._worker.groups[group].width
                contents[block * width : (block + 1) * width] = self.kept[group, key]
            are_there.append(is_there)
        middle = self._chance.randint(0, len(are_there))
        for part in filter(None, (bytes(are_there[:middle]), bytes(are_there[middle:]))):
            scheduler.arrivals.take_from_disk(BlocksFetched(rank, order.number, part))

    def _slice(self, group: int, block: int) -> list[Any]:
        contents, width = self._worker.groups[group].contents, self._worker.groups[group].width
        return contents[block * width : (block + 1) * width]
