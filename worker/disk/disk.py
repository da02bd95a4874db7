"""Carries out the engine's orders for the disk of one rank, in two threads beside the steps.

Each thread copies blocks through cells of its own, as `swap_space` does. Fetches begin at once and take what they need.
The writer has the lowest priority, and while steps run it works a small part of the time; the engine drops what it
can't keep up with. Nothing here fails a step: a folder that can't be read or written is logged, and what isn't there
is computed.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import numpy

from ...kernels.arrays import Array
from ...protocol.layer_groups import (
    KEYS_SENT,
    AboutDisk,
    BlocksFetched,
    BlocksStored,
    DiskOrders,
    FetchBlocks,
    KeysOnDisk,
    StoreBlocks,
    joined,
    keys_in,
)
from ...protocol.processes.faults import point
from ...protocol.wire import values
from ..kv.second_tier import SecondTier
from .segment import DamagedSegment, Segment, SegmentWriter
from .segment_folder import Location, SegmentFolder, keys_by_group

_LOG = logging.getLogger(__name__)
_NICENESS = 19
_REST = 31  # times as long as writing took, while steps are running
_LOOK_EVERY = 5.0  # seconds, for what others have written
_ANSWER_BYTES = 16 << 20  # fetched between two answers
_NO_PAIRS = numpy.empty((0, 2), numpy.int64)
_ONLY_CELL = 0


class Staging:
    """A thread's own cells: one for each group of layers."""

    def __init__(self, tiers: Sequence[SecondTier], computing: Callable[[], AbstractContextManager[object]]) -> None:
        self._tiers = tiers
        self._computing = computing
        self._parts = [[cells[_ONLY_CELL] for cells in tier.cells] for tier in tiers]

    @property
    def num_groups(self) -> int:
        return len(self._tiers)

    def block_bytes(self, group: int) -> int:
        return sum(part.nbytes for part in self._parts[group])

    def saved(self, group: int, block: int) -> list[Array]:
        """The content of a block."""
        with self._computing():
            self._tiers[group].move(numpy.array([[block, _ONLY_CELL]]), _NO_PAIRS)
            self._tiers[group].settle()
        return self._parts[group]

    def cell(self, group: int) -> list[Array]:
        return self._parts[group]

    def load(self, group: int, block: int) -> None:
        """Copy the cell into a block."""
        with self._computing():
            self._tiers[group].move(_NO_PAIRS, numpy.array([[_ONLY_CELL, block]]))
            self._tiers[group].settle()


class WorkerDisk:
    def __init__(
        self,
        folder: SegmentFolder,
        reading: Staging,
        writing: Staging,
        rank: int,
        answer: Callable[[AboutDisk], None],
        is_busy: Callable[[], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`is_busy` tells whether steps are running; `fail` gets the error of a thread that can't go on."""
        self._folder = folder
        self._reading, self._writing = reading, writing
        self._rank = rank
        self._answer = answer
        self._is_busy = is_busy
        self._fail = fail
        self._fetches: queue.SimpleQueue[FetchBlocks | None] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[DiskOrders | None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._is_known = threading.Event()  # what was there at the start
        self._has_failed = False  # and said so
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            for work, name in ((self._read, "fetch-blocks"), (self._write, "store-blocks"))
        ]

    def start(self, patience: float) -> None:
        """Begin to look at the folder; wait for that so long."""
        for thread in self._threads:
            thread.start()
        self._is_known.wait(patience)

    def take(self, orders: DiskOrders) -> None:
        """Take the orders of a plan, whose moves have been made."""
        for fetch in orders.fetches:
            self._fetches.put(fetch)
        if orders.stores or orders.used or orders.forgotten:
            self._orders.put(orders)

    def close(self, patience: float) -> None:
        """Write what is left, but only so long."""
        self._is_closing.set()
        self._fetches.put(None)
        self._orders.put(None)
        deadline = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._fail(error)

    # --- fetching ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._folder.remove_abandoned()
        self._look()
        self._is_known.set()
        while True:
            try:
                fetch = self._fetches.get(timeout=_LOOK_EVERY)
            except queue.Empty:
                self._look()
                continue
            if fetch is None:
                return
            self._fetch(fetch)

    def _look(self) -> None:
        try:
            found, gone = self._folder.refresh()
        except OSError as error:
            self._note(error)
            return
        self._tell(found)
        self._tell(gone, gone=True)

    def _fetch(self, fetch: FetchBlocks) -> None:
        point("worker.fetch")
        groups, keys, block_ids = values(fetch.groups), keys_in(fetch.keys), values(fetch.block_ids)
        locations = [self._folder.find(group, key) for group, key in zip(groups, keys, strict=True)]
        are_there, num_bytes = bytearray(), 0
        for first, end in _runs(locations):
            for is_there in self._read_run(locations[first:end], block_ids[first:end]):
                are_there.append(is_there)
                num_bytes += self._reading.block_bytes(groups[first])
                if num_bytes >= _ANSWER_BYTES:
                    self._answer(BlocksFetched(self._rank, fetch.number, bytes(are_there)))
                    are_there, num_bytes = bytearray(), 0
        if are_there:
            self._answer(BlocksFetched(self._rank, fetch.number, bytes(are_there)))

    def _read_run(self, locations: Sequence[Location | None], block_ids: Sequence[int]) -> Iterable[bool]:
        """Read blocks of one segment; yields for each whether it was there and intact."""
        if (location := locations[0]) is None:
            yield from (False for _ in locations)
            return
        segment, num_read = location[0], 0
        cell = self._reading.cell(segment.group)
        try:
            with segment.opened() as file:
                for (_, index), block in zip(filter(None, locations), block_ids, strict=True):
                    is_intact = segment.read_block(file, index, cell)
                    if is_intact:
                        self._reading.load(segment.group, block)
                    else:
                        self._drop(segment, "a block isn't as it was written")
                    num_read += 1
                    yield is_intact
        except (DamagedSegment, OSError) as error:
            self._drop(segment, str(error))
            yield from (False for _ in range(num_read, len(block_ids)))

    def _drop(self, segment: Segment, why: str) -> None:
        if os.path.exists(segment.path):  # else another process has removed it, to make room
            _LOG.warning("Kept prefixes in %s are not used any more, %s; they are computed again", segment.path, why)
        self._folder.drop(segment)
        self._tell([segment], gone=True)

    # --- storing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # only this thread, on Linux
        while (orders := self._orders.get()) is not None:
            for store in orders.stores:
                self._store(store)
            for group, key in orders.used:
                self._folder.use(group, key)
            if orders.forgotten:
                self._forget(keys_in(orders.forgotten))

    def _store(self, store: StoreBlocks) -> None:
        try:
            segment = self._written(store)
            self._folder.add(segment)
            self._tell([segment])
        except OSError as error:
            self._note(error)
        self._answer(BlocksStored(self._rank, store.number))

    def _written(self, store: StoreBlocks) -> Segment:
        keys, block_bytes = keys_in(store.keys), self._writing.block_bytes(store.group)
        if not self._folder.make_room(len(keys) * block_bytes):
            raise OSError("the disk is full, or prefix_cache_size is too small for them")
        writer = SegmentWriter(self._folder.folder, store.group, store.previous, keys, block_bytes)
        try:
            for block in values(store.block_ids):
                point("worker.store")
                began = time.thread_time()
                writer.add(self._writing.saved(store.group, block))
                self._rest(_REST * (time.thread_time() - began))
            return writer.complete()
        except BaseException:
            writer.forget()
            raise

    def _rest(self, seconds: float) -> None:
        """Leave the processor to steps for so long, while there are any."""
        end = time.monotonic() + seconds
        while self._is_busy() and (left := end - time.monotonic()) > 0 and not self._is_closing.is_set():
            self._is_closing.wait(min(left, 0.05))

    def _forget(self, keys: Iterable[bytes]) -> None:
        for group in range(self._writing.num_groups):
            for key in keys:
                if (found := self._folder.find(group, key)) is not None:
                    self._folder.drop(found[0])
                    self._tell([found[0]], gone=True)

    def _note(self, error: OSError) -> None:
        if isinstance(error, BlockingIOError):  # another process writes the same
            return
        if not self._has_failed:  # one line, however many follow
            _LOG.warning("Prefixes are not kept on disk: %s", error)
            self._has_failed = True

    def _tell(self, segments: Iterable[Segment], *, gone: bool = False) -> None:
        for group, keys in keys_by_group(segments).items():
            for start in range(0, len(keys), KEYS_SENT):
                part = joined(keys[start : start + KEYS_SENT])
                self._answer(KeysOnDisk(self._rank, group, part, gone))


def _runs(locations: Sequence[Location | None]) -> Iterable[tuple[int, int]]:
    """Stretches of blocks in one segment, or in none: their first index and their end."""
    first = 0
    for index in range(1, len(locations) + 1):
        if index == len(locations) or _segment(locations[index]) is not _segment(locations[first]):
            yield first, index
            first = index


def _segment(location: Location | None) -> Segment | None:
    return None if location is None else location[0]
