"""Carries out the engine's orders for the disk of one rank, in threads beside the steps.

Each thread copies blocks through cells of its own, as `swap_space` does. Fetches begin at once (`block_reader.py`). The
writer has the lowest priority, and while steps run it works a small part of the time; the engine drops what it can't
keep up with. Nothing here fails a step: a folder that can't be read or written is logged, and what isn't there is
computed.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.layer_groups import (
    KEYS_SENT,
    AboutDisk,
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
    media_group,
)
from ...protocol.processes.faults import point
from ...protocol.wire import values
from .block_reader import BlockReader
from .segment import Segment, SegmentWriter
from .segment_folder import SegmentFolder, keys_by_group
from .staging import Staging

if TYPE_CHECKING:
    from .rows_on_disk import RowsOnDisk

_LOG = logging.getLogger(__name__)
_NICENESS = 19
_REST = 31  # times as long as writing took, while steps are running
_REFRESH_SECONDS = 5.0  # between two looks for what others have written
_ANSWER_BYTES = 16 << 20  # fetched between two answers


class WorkerDisk:
    def __init__(
        self,
        folder: SegmentFolder,
        reading: Sequence[Staging],
        writing: Staging,
        rank: int,
        answer: Callable[[AboutDisk], None],
        is_busy: Callable[[], bool],
        fail: Callable[[BaseException], None],
        rows: "RowsOnDisk | None" = None,
    ) -> None:
        """`reading`: one for each thread that may read; `is_busy` tells whether steps are running; `fail` gets the
        error of a thread that can't go on; `rows`: of a model that sees, on a CPU."""
        self._folder = folder
        folder.block_bytes = [writing.block_bytes(group) for group in range(writing.num_groups)]
        self._reader = BlockReader(folder, reading, is_busy, self._drop)
        self._writing = writing
        self._rank = rank
        self._answer = answer
        self._is_busy = is_busy
        self._fail = fail
        self._rows = rows
        # What each thread has to do next; None: no more.
        self._to_fetch: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._to_write: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
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
        """Take the orders of a plan about blocks, whose moves have been made."""
        for fetch in orders.fetches:
            self._to_fetch.put(partial(self._fetch, fetch))
        if orders.stores or orders.used or orders.forgotten:
            self._to_write.put(partial(self._carry_out, orders))

    def take_rows(self, orders: DiskOrders) -> None:
        """Take the orders about rows of media of a plan whose media have been encoded."""
        if (rows := self._rows) is None:  # on a card: none are written, so none are fetched
            return
        for fetch in orders.fetched_rows:
            rows.reserve(fetch)
            self._to_fetch.put(partial(self._fetch_rows, rows, fetch))
        for store in orders.stored_rows:
            self._to_write.put(partial(self._store_rows, rows, store))

    def close(self, patience: float) -> None:
        """Write what is left, but only so long."""
        self._is_closing.set()
        self._to_fetch.put(None)
        self._to_write.put(None)
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
                fetch = self._to_fetch.get(timeout=_REFRESH_SECONDS)
            except queue.Empty:
                self._look()
                continue
            if fetch is None:
                return
            fetch()

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
        groups, answered = values(fetch.groups), 0
        are_there, num_bytes = b"", 0
        for part in self._reader.read(fetch):
            are_there += part
            num_bytes += sum(map(self._reader.block_bytes, groups[answered : answered + len(part)]))
            answered += len(part)
            if num_bytes >= _ANSWER_BYTES or answered == len(groups):
                self._answer(BlocksFetched(self._rank, fetch.number, are_there))
                are_there, num_bytes = b"", 0

    def _fetch_rows(self, rows: "RowsOnDisk", fetch: FetchRows) -> None:
        point("worker.fetch")
        is_there = rows.fetch(fetch, self._drop)
        self._answer(RowsFetched(self._rank, fetch.number, is_there))

    def _drop(self, segment: Segment, why: str) -> None:
        if os.path.exists(segment.path):  # else another process has removed it, to make room
            _LOG.warning("Ignoring kept prefixes in %s (%s); they will be recomputed", segment.path, why)
        self._folder.drop(segment)
        self._tell([segment], gone=True)

    # --- storing ----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # only this thread, on Linux
        while (work := self._to_write.get()) is not None:
            work()

    def _carry_out(self, orders: DiskOrders) -> None:
        for store in orders.stores:
            self._store(store)
        for group, key in orders.used:
            self._folder.use(group, key)
        if orders.forgotten:
            self._forget(keys_in(orders.forgotten))

    def _store(self, store: StoreBlocks) -> None:
        try:
            segment = self._write_segment(store)
            self._folder.add(segment)
            self._tell([segment])
        except OSError as error:
            self._note(error)
        self._answer(BlocksStored(self._rank, store.number))

    def _write_segment(self, store: StoreBlocks) -> Segment:
        keys, block_bytes = keys_in(store.keys), self._writing.block_bytes(store.group)
        if not self._folder.make_room(len(keys) * block_bytes):
            raise OSError("the disk is full, or prefix_cache_size is too small for them")
        writer = SegmentWriter(self._folder.folder, store.group, store.previous, keys, block_bytes)
        try:
            for block in values(store.block_ids):
                point("worker.store")
                began = time.thread_time()
                writer.add(self._writing.save(store.group, block))
                self._rest_since(began)
            return writer.complete()
        except BaseException:
            writer.forget()
            raise

    def _store_rows(self, rows: "RowsOnDisk", store: StoreRows) -> None:
        began = time.thread_time()

        def pause() -> None:
            nonlocal began
            point("worker.store")
            self._rest_since(began)
            began = time.thread_time()

        try:
            if (segment := rows.write(store, pause)) is not None:
                self._folder.add(segment)
                self._tell([segment])
        except OSError as error:
            self._note(error)

    def _rest_since(self, began: float) -> None:
        """Leave the processor to steps in proportion to the time worked since then, while there are any."""
        end = time.monotonic() + _REST * (time.thread_time() - began)
        while self._is_busy() and (left := end - time.monotonic()) > 0 and not self._is_closing.is_set():
            self._is_closing.wait(min(left, 0.05))

    def _forget(self, keys: Iterable[bytes]) -> None:
        for group in range(media_group(self._writing.num_groups) + 1):
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
