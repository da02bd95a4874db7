"""A rank's memory and disk as one process has them, files that are damaged, and calls to the system that fail."""

import errno
import os
import queue
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy
from builders.watching import BOUND_SECONDS

from penstock.protocol.files.prefix_folder import SEGMENT, UNFINISHED
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
    media_group,
)
from penstock.protocol.messages import StepPlan
from penstock.protocol.wire import column
from penstock.worker.device import HostDevice
from penstock.worker.disk import segment as segments
from penstock.worker.disk.disk import WorkerDisk
from penstock.worker.disk.rows_on_disk import RowsOnDisk
from penstock.worker.disk.segment import SegmentWriter
from penstock.worker.disk.segment_folder import SegmentFolder
from penstock.worker.disk.staging import Staging
from penstock.worker.kv.second_tier import HostTier
from penstock.worker.media.rows import KeptMedia

BLOCKS = 12
# Of two groups of layers: parts of odd and of even sizes, larger and smaller than a page.
SHAPES = [[(3, BLOCKS, 700), (3, BLOCKS, 33)], [(1, BLOCKS, 5000)]]
MEDIA, ROW, NUM_ROWS = media_group(len(SHAPES)), 150, [1, 7, 12, 30]  # of the media, by number


def key(number: int) -> bytes:
    return number.to_bytes(32)


def content(group: int, number: int, shape: tuple[int, ...]) -> numpy.ndarray:
    """What the block of this key holds in a part of this shape."""
    chance = numpy.random.default_rng([group, number, shape[2]])
    return chance.integers(0, 256, (shape[0], shape[2]), numpy.uint8)


def rows_of(number: int) -> numpy.ndarray:
    """The rows of a medium."""
    chance = numpy.random.default_rng([MEDIA, number])
    return chance.random((NUM_ROWS[number % len(NUM_ROWS)], ROW), numpy.float32)


def kept_media() -> KeptMedia:
    """Memory for rows, without an encoder."""
    config = SimpleNamespace(row_parts=2, out_size=ROW // 2)
    encoder = SimpleNamespace(config=config, placement=SimpleNamespace(activations=numpy.dtype(numpy.float32)))
    return KeptMedia(SimpleNamespace(encoder=encoder, device=HostDevice()), max(NUM_ROWS) + 2)


class Killed(BaseException):
    """The process ended here."""


class Written:
    """Everything was written that was ordered before."""


class Rank:
    """A rank's memory and disk, as one process has them."""

    def __init__(self, folder: Path, most_bytes: int = 1 << 40, time_to_live: float | None = None) -> None:
        self.memory = [[numpy.zeros(shape, numpy.uint8) for shape in shapes] for shapes in SHAPES]
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        self.failures: list[BaseException] = []
        self.known: set[tuple[int, bytes]] = set()  # that it has told of
        self.folder = SegmentFolder(folder, most_bytes, time_to_live)
        writing, *reading = (self._staging() for _ in range(3))
        self.media = kept_media()
        rows = RowsOnDisk(self.folder, MEDIA, self.media, self.media.rows)
        self.disk = WorkerDisk(
            self.folder, reading, writing, 0, self.answers.put, lambda: False, lambda error: self._failed(error), rows
        )
        self.disk.start(BOUND_SECONDS)
        self.number = 0

    def _staging(self) -> Staging:
        return Staging([HostTier(parts, 1) for parts in self.memory], nullcontext)

    def _failed(self, error: BaseException) -> None:
        self.failures.append(error)
        self.answers.put(error)

    def store(self, group: int, numbers: list[int], previous: bytes = b"") -> bool:
        """Store blocks with their content; False if the process was killed."""
        self.number += 1
        block_ids = list(range(len(numbers)))
        for block, number in zip(block_ids, numbers, strict=True):
            for part in self.memory[group]:
                part[:, block] = content(group, number, part.shape)
        order = StoreBlocks(self.number, group, previous, joined(map(key, numbers)), column(block_ids))
        self.disk.take(DiskOrders(stores=[order]))
        return isinstance(self.answer(BlocksStored), BlocksStored)

    def fetch(self, wanted: list[tuple[int, int]]) -> list[bool]:
        """Fetch blocks by group and number; check those that are there, and tell which."""
        self.number += 1
        block_ids = [block % BLOCKS for block in range(len(wanted))]
        groups, numbers = zip(*wanted, strict=True)
        keys = joined(map(key, numbers))
        self.disk.take(DiskOrders(fetches=[FetchBlocks(self.number, column(groups), keys, column(block_ids))]))
        are_there = b""
        while len(are_there) < len(wanted):
            are_there += self.answer(BlocksFetched).are_there
        for (group, number), block, is_there in zip(wanted, block_ids, are_there, strict=True):
            for part in self.memory[group] if is_there else ():
                assert numpy.array_equal(part[:, block], content(group, number, part.shape)), "wrong bytes"
        return list(map(bool, are_there))

    def store_rows(self, number: int) -> bool:
        """Store the rows of a medium; False if the process was killed."""
        entry = self._entry(number)
        self.media.fill(entry, lambda: self.media.rows.__setitem__(self.media.rows_of(entry), rows_of(number)))
        self.disk.take_rows(DiskOrders(stored_rows=[StoreRows(entry, key(number))]))
        self.disk._to_write.put(lambda: self.answers.put(Written()))
        lives = isinstance(self.answer(Written), Written)
        self._drop(entry)
        return lives

    def fetch_rows(self, number: int) -> bool:
        """Fetch the rows of a medium; check them if they are there, and tell."""
        self.number += 1
        entry, count = 1000 + self.number, len(rows_of(number))
        self.disk.take_rows(DiskOrders(fetched_rows=[FetchRows(self.number, entry, count, key(number))]))
        is_there = self.answer(RowsFetched).is_there
        if is_there:
            assert numpy.array_equal(self.media.rows[self.media.rows_of(entry)], rows_of(number)), "wrong rows"
        self._drop(entry)
        return is_there

    def _entry(self, number: int) -> int:
        self.number += 1
        self.media.reserve(self.number, len(rows_of(number)))
        return self.number

    def _drop(self, entry: int) -> None:
        self.media.apply(StepPlan(0, b"", b"", [], dropped_entries=column([entry])))

    def answer(self, kind: type) -> object:
        while True:
            message = self.answers.get(timeout=BOUND_SECONDS)
            if isinstance(message, KeysOnDisk):
                change = self.known.difference_update if message.gone else self.known.update
                change((message.group, each) for each in keys_in(message.keys))
            elif isinstance(message, (kind, Killed)):
                return message

    def close(self) -> None:
        self.disk.close(BOUND_SECONDS)


@contextmanager
def faults(plan: list[str]) -> Iterator[None]:
    """Let the next calls that change files pass, be refused, be cut short, or end the process before or after them."""
    coming = iter(plan)
    own = mock.MagicMock(wraps=os)
    for name in dir(os):
        if name.startswith(("O_", "POSIX_")):
            setattr(own, name, getattr(os, name))

    def passing(name: str):
        def call(*arguments):
            fault = next(coming, "")
            if fault == "refused":
                raise OSError(errno.EIO, "refused")
            if fault == "kill before":
                raise Killed
            if fault == "short" and name == "pwritev":
                return os.pwritev(arguments[0], [arguments[1][0][:50]], arguments[2])
            result = getattr(os, name)(*arguments)
            if fault == "kill after":
                raise Killed
            return result

        return call

    for name in ("pwritev", "pwrite", "rename", "posix_fallocate", "ftruncate"):
        setattr(own, name, passing(name))

    def forget(writer: SegmentWriter) -> None:
        os.close(writer._file)  # as the system does

    real = SegmentWriter.forget
    is_killed = any(fault.startswith("kill") for fault in plan)
    with (
        mock.patch.object(segments, "os", own),
        mock.patch.object(SegmentWriter, "forget", forget if is_killed else real),
    ):
        yield


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (SEGMENT, UNFINISHED))


def damage(folder: Path, how: str, number: int) -> None:
    """Do to some file what bad disks, crashes of machines and people do."""
    if not (files := files_in(folder)):
        return
    path = files[number % len(files)]
    octets = bytearray(path.read_bytes())
    at = number * 7919 % max(1, len(octets))
    match how:
        case "flip" if octets:
            octets[at] ^= 1 << number % 8
            path.write_bytes(octets)
        case "tear":
            octets[at : at + 4096] = bytes(len(octets[at : at + 4096]))
            path.write_bytes(octets)
        case "cut":
            path.write_bytes(octets[:at])
        case "grow":
            path.write_bytes(octets + b"more")
        case "remove":
            path.unlink()
        case "swap":
            other = files[(number // 3) % len(files)]
            other_octets = other.read_bytes()
            other.write_bytes(octets)
            path.write_bytes(other_octets)
        case "rename":
            path.rename(path.with_suffix(SEGMENT if path.suffix == UNFINISHED else UNFINISHED))
