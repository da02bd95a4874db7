"""Blocks on disk: a fetch gives the bytes that were stored under its key or nothing, whatever has happened to files."""

import errno
import os
import queue
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy
import pytest
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.files.own_folder import make_own
from penstock.protocol.files.prefix_folder import SEGMENT, UNFINISHED, WHAT, PrefixKind
from penstock.protocol.layer_groups import (
    BlocksFetched,
    BlocksStored,
    DiskOrders,
    FetchBlocks,
    KeysOnDisk,
    StoreBlocks,
    joined,
    keys_in,
)
from penstock.protocol.wire import column
from penstock.worker.disk import block_reader
from penstock.worker.disk import segment as segments
from penstock.worker.disk.disk import WorkerDisk
from penstock.worker.disk.segment import SegmentWriter, checksum
from penstock.worker.disk.segment_folder import SegmentFolder
from penstock.worker.disk.staging import Staging
from penstock.worker.kv.second_tier import HostTier

BLOCKS = 12
# Of two groups of layers: parts of odd and of even sizes, larger and smaller than a page.
SHAPES = [[(3, BLOCKS, 700), (3, BLOCKS, 33)], [(1, BLOCKS, 5000)]]
SECONDS = 30


def key(number: int) -> bytes:
    return number.to_bytes(32)


def content(group: int, number: int, shape: tuple[int, ...]) -> numpy.ndarray:
    """What the block of this key holds in a part of this shape."""
    chance = numpy.random.default_rng([group, number, shape[2]])
    return chance.integers(0, 256, (shape[0], shape[2]), numpy.uint8)


class Killed(BaseException):
    """The process ended here."""


class Rank:
    """A rank's memory and disk, as one process has them."""

    def __init__(self, folder: Path, most_bytes: int = 1 << 40, time_to_live: float | None = None) -> None:
        self.memory = [[numpy.zeros(shape, numpy.uint8) for shape in shapes] for shapes in SHAPES]
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        self.failures: list[BaseException] = []
        self.known: set[tuple[int, bytes]] = set()  # that it has told of
        self.folder = SegmentFolder(folder, most_bytes, time_to_live)
        writing, *reading = (self._staging() for _ in range(3))
        self.disk = WorkerDisk(
            self.folder, reading, writing, 0, self.answers.put, lambda: False, lambda error: self._failed(error)
        )
        self.disk.start(SECONDS)
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

    def answer(self, kind: type) -> object:
        while True:
            message = self.answers.get(timeout=SECONDS)
            if isinstance(message, KeysOnDisk):
                change = self.known.difference_update if message.gone else self.known.update
                change((message.group, each) for each in keys_in(message.keys))
            elif isinstance(message, (kind, Killed)):
                return message

    def close(self) -> None:
        self.disk.close(SECONDS)


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


NUMBERS = st.lists(st.integers(0, 7), min_size=1, max_size=6, unique=True)
FAULT_PLANS = st.lists(st.sampled_from(["", "", "", "refused", "short", "kill before", "kill after"]), max_size=9)
ACTIONS = st.one_of(
    st.tuples(st.just("store"), st.integers(0, 1), NUMBERS, st.just([]) | FAULT_PLANS),
    st.tuples(st.just("fetch"), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7)), min_size=1, max_size=12)),
    st.tuples(
        st.just("damage"),
        st.sampled_from(["flip", "flip", "tear", "cut", "grow", "remove", "swap", "rename"]),
        st.integers(0, 10_000),
    ),
    st.tuples(st.just("restart")),
    st.tuples(st.just("other process")),
    st.tuples(st.just("look")),
)


@given(st.lists(ACTIONS, min_size=4, max_size=30), st.sampled_from([1 << 40, 60_000, 20_000]))
@settings(max_examples=60, deadline=None)
def test_a_fetch_gives_what_was_stored_or_nothing(actions, most_bytes):
    in_threads = mock.patch.object(block_reader, "_RUN_BYTES", 5000)  # a file's blocks are read by several
    with TemporaryDirectory() as parent, in_threads, mock.patch.object(SegmentFolder, "LEAST_FREE", 0):
        folder = kind_in(Path(parent, "prefixes"))
        ranks = [Rank(folder, most_bytes)]  # the one that acts is the last
        try:
            for action in actions:
                act(action, ranks, folder, most_bytes)
                assert not any(isinstance(error, Exception) for rank in ranks for error in rank.failures)
        finally:
            for rank in ranks:
                rank.close()


def act(action: tuple, ranks: list[Rank], folder: Path, most_bytes: int) -> None:
    match action:
        case "store", group, numbers, plan:
            with faults(plan):
                lives = ranks[-1].store(group, numbers)
            if not lives:
                ranks.pop().close()
                ranks.append(Rank(folder, most_bytes))
        case "fetch", wanted:
            ranks[-1].fetch(wanted)
        case "damage", how, number:
            damage(folder, how, number)
        case ("restart",):
            ranks.pop().close()
            ranks.append(Rank(folder, most_bytes))
        case ("other process",):
            if len(ranks) < 2:
                ranks.append(Rank(folder, most_bytes))
            ranks.reverse()
        case ("look",):
            ranks[-1].folder.refresh()


@pytest.fixture
def folder(tmp_path) -> Path:
    return kind_in(tmp_path / "prefixes")


def kind_in(root: Path) -> Path:
    """An empty folder for one kind of block, in one of ours."""
    make_own(root, WHAT)
    (root / "kind").mkdir()
    return root / "kind"


def test_what_was_stored_is_there_after_a_restart_in_files_for_this_user_only(folder):
    rank = Rank(folder)
    assert rank.store(0, [1, 2, 3]) and rank.store(1, [3])
    rank.close()
    later = Rank(folder)
    assert later.fetch([(0, 3), (0, 1), (1, 3), (1, 1), (0, 2)]) == [True, True, True, False, True]
    assert later.known == {(0, key(1)), (0, key(2)), (0, key(3)), (1, key(3))}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(folder)} == {0o600}
    later.close()


def test_one_flipped_bit_anywhere_in_a_block_is_a_miss_and_removes_the_file(folder):
    rank = Rank(folder)
    for at in (0, 40, 200, 5000, 8191):
        rank.store(0, [1, 2, 3])
        [path] = files_in(folder)
        octets = bytearray(path.read_bytes())
        octets[4096 + at % 2199] ^= 4
        path.write_bytes(octets)
        assert rank.fetch([(0, 1), (0, 2)]) == [False, True] and not files_in(folder)
    rank.close()


def test_the_least_recently_used_chain_goes_first_and_its_tail_before_its_head(folder):
    rank = Rank(folder, most_bytes=45_000)
    for number in (1, 2):  # each chain has a head and a tail
        rank.store(1, [number])
        rank.store(1, [10 + number], previous=key(number))
    for path in files_in(folder):  # the system stamps new files with the time of its last tick
        os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    rank.disk.take(DiskOrders(used=[(1, key(11))]))
    for number in (3, 4):
        rank.store(1, [number])
        path = rank.folder.find(1, key(number))[0].path
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    assert rank.fetch([(1, number) for number in (1, 11, 2, 12, 3, 4)]) == [True, True, False, False, True, True]
    rank.store(1, [5])
    assert rank.fetch([(1, 1), (1, 11)]) == [True, False]
    rank.close()


def test_what_another_process_has_written_is_found_at_the_next_look(folder):
    one, other = Rank(folder), Rank(folder)
    other.store(0, [1])
    assert one.fetch([(0, 1)]) == [False]
    one.disk._look()
    assert one.fetch([(0, 1)]) == [True]
    one.close()
    other.close()


def test_what_was_not_used_for_its_time_to_live_is_not_found(folder):
    rank = Rank(folder, time_to_live=60)
    rank.store(0, [1])
    assert rank.fetch([(0, 1)]) == [True]
    for path in files_in(folder):
        os.utime(path, (0, 0))
    assert rank.fetch([(0, 1)]) == [False]
    rank.close()


def test_an_abandoned_file_is_removed_at_the_next_start_and_one_being_written_is_not(folder):
    (folder / f"old{UNFINISHED}").write_bytes(b"half")
    writer = SegmentWriter(folder, 0, b"", [key(1)], 100)
    Rank(folder).close()
    assert [path.suffix for path in files_in(folder)] == [UNFINISHED]
    writer.forget()
    assert not files_in(folder)


def folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"")


@for_each("make", [folder_with_a_file, os.mkfifo, lambda path: path.symlink_to(path.parent.parent / "elsewhere")])
def test_what_is_no_file_makes_way_for_a_segment_and_is_never_followed(make, tmp_path_factory):
    root = tmp_path_factory.mktemp("prefixes")
    make_own(root, WHAT)
    (root / "kind").mkdir()
    (root / "elsewhere").write_bytes(b"mine")
    rank = Rank(root / "kind", most_bytes=45_000)
    rank.store(0, [1, 2, 3])
    [path] = files_in(root / "kind")
    path.unlink()
    make(path)  # while it is known
    assert rank.fetch([(0, 1)]) == [False] and not files_in(root / "kind")
    make(path)
    make(path.with_suffix(UNFINISHED))
    rank.store(0, [1, 2, 3])
    assert rank.fetch([(0, 1)]) == [True]
    make(root / "kind" / f"aa{SEGMENT}")
    for number in range(10, 20):  # all that doesn't fit goes
        rank.store(1, [number])
    assert not rank.failures and len(files_in(root / "kind")) in range(4, 9)
    rank.close()
    make(root / "kind" / f"bb{SEGMENT}")
    make(root / "kind" / f"bb{UNFINISHED}")
    Rank(root / "kind").close()
    assert all(path.is_file() and not path.is_symlink() for path in (root / "kind").iterdir())
    make(root / "kind" / f"cc{SEGMENT}")
    PrefixKind(root / "kind").remove()
    assert (root / "elsewhere").read_bytes() == b"mine" and not (root / "kind").exists()


def test_a_checksum_tells_apart_what_differs_in_place_order_or_key():
    parts = [numpy.arange(20_000, dtype=numpy.uint8), numpy.arange(99, dtype=numpy.uint8)]
    rolled = [numpy.roll(parts[0], 4096), parts[1]]
    swapped = [parts[0].copy(), parts[1]]
    swapped[0][[0, 8]] = swapped[0][[8, 0]]
    assert len({checksum(key(1), each) for each in (parts, rolled, swapped)} | {checksum(key(2), parts)}) == 4


def test_a_full_disk_keeps_nothing_and_stops_nothing(folder):
    with faults(["refused"] * 50):
        rank = Rank(folder)
        assert rank.store(0, [1]) and rank.store(0, [2])
    assert rank.fetch([(0, 1)]) == [False] and not files_in(folder)
    with suppress(OSError):
        rank.close()
