"""Blocks on disk: a fetch gives the bytes that were stored under its key or nothing, whatever has happened to files."""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import numpy
import pytest
from builders.cases import for_each
from builders.rank_disk import MEDIA, Rank, damage, faults, files_in, kept_media, key
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.files.own_folder import make_own
from penstock.protocol.files.prefix_folder import SEGMENT, UNFINISHED, WHAT, PrefixKind
from penstock.protocol.layer_groups import DiskOrders, FetchRows, StoreRows
from penstock.protocol.messages import StepPlan
from penstock.protocol.wire import column
from penstock.worker.disk import block_reader, rows_on_disk
from penstock.worker.disk.rows_on_disk import RowsOnDisk
from penstock.worker.disk.segment import DamagedSegment, SegmentWriter, checksum
from penstock.worker.disk.segment_folder import SegmentFolder

NUMBERS = st.lists(st.integers(0, 7), min_size=1, max_size=6, unique=True)
FAULT_PLANS = st.lists(st.sampled_from(["", "", "", "refused", "short", "kill before", "kill after"]), max_size=9)
ACTIONS = st.one_of(
    st.tuples(st.just("store"), st.integers(0, 1), NUMBERS, st.just([]) | FAULT_PLANS),
    st.tuples(st.just("fetch"), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7)), min_size=1, max_size=12)),
    st.tuples(st.just("store rows"), st.integers(0, 7), st.just([]) | FAULT_PLANS),
    st.tuples(st.just("fetch rows"), st.integers(0, 7)),
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
@settings(max_examples=60)
def test_a_fetch_gives_what_was_stored_or_nothing(actions, most_bytes):
    in_threads = mock.patch.object(block_reader, "_RUN_BYTES", 5000)  # a file's blocks are read by several
    in_pieces = mock.patch.object(rows_on_disk, "_PIECE", 3000)
    with TemporaryDirectory() as parent, in_threads, in_pieces, mock.patch.object(SegmentFolder, "LEAST_FREE", 0):
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
        case ("store", *order, plan) | ("store rows", *order, plan):
            with faults(plan):
                lives = ranks[-1].store(*order) if action[0] == "store" else ranks[-1].store_rows(*order)
            if not lives:
                ranks.pop().close()
                ranks.append(Rank(folder, most_bytes))
        case "fetch", wanted:
            ranks[-1].fetch(wanted)
        case "fetch rows", number:
            ranks[-1].fetch_rows(number)
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


def test_what_was_stored_is_there_after_a_restart_in_files_for_this_user_only(folder, monkeypatch):
    monkeypatch.setattr(rows_on_disk, "_PIECE", 1500)  # rows take several pieces
    rank = Rank(folder)
    assert rank.store(0, [1, 2, 3]) and rank.store(1, [3]) and all(rank.store_rows(number) for number in range(4))
    rank.close()
    later = Rank(folder)
    assert later.fetch([(0, 3), (0, 1), (1, 3), (1, 1), (0, 2)]) == [True, True, True, False, True]
    assert [later.fetch_rows(number) for number in (3, 0, 4, 2, 1)] == [True, True, False, True, True]
    blocks = {(0, key(1)), (0, key(2)), (0, key(3)), (1, key(3))}
    assert later.known == blocks | {(MEDIA, key(number)) for number in range(4)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(folder)} == {0o600}
    later.close()


def test_rows_whose_entry_is_dropped_meanwhile_are_neither_written_nor_overwritten(folder, monkeypatch):
    monkeypatch.setattr(rows_on_disk, "_PIECE", 1500)
    media = kept_media()
    tested = RowsOnDisk(SegmentFolder(folder, 1 << 40), MEDIA, media, media.rows)

    def reuse() -> None:
        if media.rows_of(1) is not None:
            media.apply(StepPlan(0, b"", b"", [], dropped_entries=column([1])))
            media.rows[:] = 5.0

    media.reserve(1, 30)
    assert tested.write(StoreRows(1, key(1)), reuse) is None and not files_in(folder)
    media.reserve(2, 30)
    tested._folder.add(tested.write(StoreRows(2, key(1)), lambda: None))
    media.apply(StepPlan(0, b"", b"", [], dropped_entries=column([2])))
    media.rows[:] = 0.0
    media.reserve(1, 30)
    with monkeypatch.context() as patch:
        fill = media.fill
        patch.setattr(media, "fill", lambda *given: (fill(*given), reuse())[0])
        assert not tested.fetch(FetchRows(1, 1, 30, key(1)), lambda segment, why: pytest.fail(why))
    assert (media.rows == 5.0).all()


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


@for_each("group, keys, block_bytes", [
    (99, key(1), None), (-1, key(1), None), (0, key(1)[:-1], None), (0, b"", 8), (0, key(1), 8), (MEDIA, key(1), 0),
    (MEDIA, key(1) + key(2), 8),
])  # fmt: skip
def test_a_sound_file_of_what_the_rank_has_not_is_removed_at_the_start_and_never_told(folder, group, keys, block_bytes):
    num_bytes = sum(part[:, 0].nbytes for part in Rank(folder).memory[0]) if block_bytes is None else block_bytes
    each = [keys[at : at + 32] for at in range(0, len(keys), 32)]
    writer = SegmentWriter(folder, group, b"", each, num_bytes)
    for _ in each:
        writer.add([numpy.zeros(num_bytes, numpy.uint8)])
    with suppress(DamagedSegment):
        writer.complete()
    rank = Rank(folder)
    assert rank.fetch([(0, 1)]) == [False] and not files_in(folder) and not rank.known
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


@for_each("missing, is_kept", [(0, True), (1, False)])
def test_a_gigabyte_of_the_disk_stays_free(missing, is_kept, monkeypatch, tmp_path):
    rank = Rank(kind_in(tmp_path / "prefixes"))
    need = (1 << 30) + sum(part[:, :2].nbytes for part in rank.memory[0])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=need - missing))
    rank.store(0, [1, 2])
    assert rank.fetch([(0, 1), (0, 2)]) == [is_kept] * 2
    rank.close()


def test_a_full_disk_keeps_nothing_and_stops_nothing(folder):
    with faults(["refused"] * 50):
        rank = Rank(folder)
        assert rank.store(0, [1]) and rank.store(0, [2])
    assert rank.fetch([(0, 1)]) == [False] and not files_in(folder)
    with suppress(OSError):
        rank.close()
