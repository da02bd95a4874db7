"""A job's journal keeps what it has committed through faults of the disk and crashes at any moment."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import pytest
from builders.cases import for_each
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.frontend import file_replacement
from penstock.frontend.jobs import locked_file
from penstock.frontend.jobs.journal import journal as journals
from penstock.frontend.jobs.journal.journal import Journal, frame, is_open_elsewhere, read_journal, record_at
from penstock.protocol.errors import ConfigError, PenstockError

PAGE = 32  # small, so that records share pages and span several


class Disk:
    """A file whose unsynced pages a crash may lose or tear, and whose writes and syncs fail when told to.

    The real file is what the kernel has in memory; `stored` is what the disk has. As in Linux, pages that a sync could
    not write count as clean from then on: no later sync stores them, unless they are written again.
    """

    def __init__(self, path: Path, faults: Iterator[str]) -> None:
        self.path, self.faults, self.stored = path, faults, b""
        self.dirty: set[int] = set()  # pages

    def write(self, file: int, content: bytes) -> int:
        start = os.lseek(file, 0, os.SEEK_CUR)
        written = self.pwrite(file, content, start)
        os.lseek(file, start + written, os.SEEK_SET)
        return written

    def pwrite(self, file: int, content: bytes, start: int) -> int:
        fault = next(self.faults, "")
        if fault == "refused":
            raise OSError(errno.EIO, "refused")
        if fault in ("short", "full"):
            content = content[: len(content) // 2]
        written = os.pwrite(file, content or b"", start)
        self.dirty.update(range(start // PAGE, -(-(start + written) // PAGE)))
        if fault == "full":
            raise OSError(errno.ENOSPC, "full")
        return written

    def ftruncate(self, file: int, length: int) -> None:
        self.dirty.update(range(length // PAGE, -(-os.fstat(file).st_size // PAGE)))
        os.ftruncate(file, length)

    def fsync(self, file: int) -> None:
        is_refused = next(self.faults, "") == "refused"
        if not os.path.isdir(f"/proc/self/fd/{file}"):
            dirty, self.dirty = self.dirty, set()
            if not is_refused:
                self.stored = self._mixed(os.fstat(file).st_size, dict.fromkeys(dirty, PAGE))
        if is_refused:
            raise OSError(errno.EIO, "refused")

    def crash(self, choices: Iterator[int]) -> None:
        """What a crash leaves: of each dirty page the stored one, the newer one, or the beginning of the newer one."""
        least, most = sorted((self.path.stat().st_size, len(self.stored)))
        size = (least, most, most, least + next(choices) % (most - least + 1))[next(choices) % 4]
        kept = {page: (0, PAGE, next(choices) % (PAGE + 1))[next(choices) % 3] for page in sorted(self.dirty)}
        self.stored = self._mixed(size, kept)
        self.path.write_bytes(self.stored)
        self.dirty = set()

    def _mixed(self, size: int, kept: dict[int, int]) -> bytes:
        """The stored file, with so many bytes of some pages as the kernel has them."""
        newer, mixed = self.path.read_bytes(), bytearray(size)
        mixed[: len(self.stored)] = self.stored[:size]
        for page, count in kept.items():
            start = page * PAGE
            part = newer[start : min(start + count, size)]
            mixed[start : start + len(part)] = part
        return bytes(mixed)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        own = SimpleNamespace(**vars(os))
        own.write, own.pwrite, own.ftruncate, own.fsync = self.write, self.pwrite, self.ftruncate, self.fsync
        # Folders are synced elsewhere, and records are written long before they are synced.
        syncs_folders = mock.patch.object(file_replacement, "os", own)
        with (
            mock.patch.object(journals, "os", own),
            syncs_folders,
            mock.patch.object(journals, "_BUFFERED_BYTES", PAGE),
        ):
            yield


def endless(numbers: list[int]) -> Iterator[int]:
    return (numbers[at % len(numbers)] for at in range(1 << 30))


A_PAGE = PAGE - len(frame(b"", 0))  # the length of a record whose frame fills a page
LENGTHS = st.one_of(st.just(A_PAGE), st.integers(0, 90))
STEPS = st.lists(st.one_of(LENGTHS, LENGTHS, st.sampled_from(["commit", "kill", "crash"])), max_size=20)
FAULTS = st.lists(st.sampled_from(["", "", "", "short", "full", "refused"]), max_size=12)
OPENED = ["", ""]  # no fault of the two syncs when a journal is opened
# For a crash's choices: its file is as long as the newer one, and of its pages the first one is lost.
FIRST_PAGE_LOST = [0, 1, 0, 0, *[0, 1] * 5]


@settings(max_examples=200)
@example([A_PAGE, A_PAGE, "crash", A_PAGE], [], FIRST_PAGE_LOST)
@example([A_PAGE, "commit", "commit", A_PAGE, "commit"], [*OPENED, "", "refused"], [0])
@example([A_PAGE, "commit"], [*OPENED, "short"], [0])
@example([A_PAGE, "kill", "kill", "kill"], [*OPENED, "", "refused"], [0])
@given(STEPS, FAULTS, st.lists(st.integers(0, 1 << 16), min_size=1, max_size=12))
def test_any_fault_or_crash_leaves_the_first_records_and_all_that_were_committed(steps, faults, choices):
    with TemporaryDirectory() as folder:
        path = Path(folder, "journal")
        disk, chosen = Disk(path, iter(faults)), endless(choices)
        appended: list[bytes] = []
        committed = 0
        journal = None
        with disk.in_place():
            for step in [*steps, "crash"]:
                try:
                    if journal is None:
                        journal = Journal.open(path, commit_seconds=1e9)
                        kept = [found.record for found in journal.records()]
                        assert kept == appended[: len(kept)] and len(kept) >= committed
                        appended, committed = kept, len(kept)
                    if step == "commit":
                        journal.commit()
                        committed = len(appended)
                    elif isinstance(step, int):
                        appended.append(bytes([len(appended) + 1]) * step)
                        journal.append(appended[-1])
                except PenstockError as error:
                    if "damaged" in str(error):  # this disk keeps what it has synced
                        raise
                    if journal is not None:  # it has whole records still, and goes on behind them
                        appended = [found.record for found in read_journal(path)]
                        assert len(appended) >= committed
                if step in ("kill", "crash"):
                    if journal is not None:
                        os.close(journal._file)
                        journal = None
                    if step == "crash" and path.exists():
                        disk.crash(chosen)
            disk.faults = iter(())
            with_all = Journal.open(path)
            kept = [found.record for found in with_all.records()]
            assert kept == appended[: len(kept)] and len(kept) >= committed
            with_all.close()


def written(path: Path, *records: bytes) -> list[int]:
    """The records, each committed; returns where each begins."""
    journal = Journal.open(path)
    for record in records:
        journal.append(record)
        journal.commit()
    offsets = [found.offset for found in journal.records()]
    journal.close()
    return offsets


@for_each("cut", range(1, 40))
def test_a_torn_tail_is_cut_off_and_the_journal_goes_on(tmp_path, cut):
    path = tmp_path / "journal"
    offsets = written(path, b"one", b"two", b"three" * 7)
    os.truncate(path, path.stat().st_size - min(cut, path.stat().st_size - offsets[2]))
    written(path, b"four")
    assert [found.record for found in read_journal(path)] == [b"one", b"two", b"four"]


@for_each("reader", [Journal.open, lambda path: list(read_journal(path))], ids=["run", "status"])
def test_damage_in_the_middle_is_told_with_its_place_and_changes_nothing(tmp_path, reader):
    path = tmp_path / "journal"
    offsets = written(path, b"one", b"two", b"three")
    whole = path.read_bytes()
    for damaged in (0, 1):
        for place in range(offsets[damaged] + (5 if damaged == 0 else 0), offsets[damaged + 1]):
            content = bytearray(whole)
            content[place] ^= 1
            path.write_bytes(content)
            sentence = f"damaged at byte {offsets[damaged]}, and whole again from byte {offsets[damaged + 1]}"
            with pytest.raises(PenstockError, match=sentence):
                reader(path)
            assert path.read_bytes() == content
    path.write_bytes(b"x" + whole[1:])
    with pytest.raises(PenstockError, match="not the journal of a job"):
        reader(path)


def test_one_run_at_a_time_has_a_journal_which_is_its_users_alone(tmp_path):
    path = tmp_path / "journal"
    journal = Journal.open(path)
    assert path.stat().st_mode & 0o777 == 0o600 and is_open_elsewhere(path)
    with pytest.raises(ConfigError, match="belongs to a run of this job that is going on"):
        Journal.open(path)
    journal.append(b"one")
    journal.close()
    assert not is_open_elsewhere(path)


def test_a_run_that_ends_without_a_record_takes_no_journal_away_from_the_next_one(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    first, lock = Journal.open(path), locked_file._lock

    def late(*given: int) -> None:  # the file is open, and now the first run ends
        first.close()
        lock(*given)

    monkeypatch.setattr(locked_file, "_lock", late)
    second = Journal.open(path)
    second.append(b"one")
    second.commit()
    with pytest.raises(ConfigError, match="belongs to a run"):
        Journal.open(path)
    second.close()
    assert [found.record for found in read_journal(path)] == [b"one"]


@for_each(
    "make",
    [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir(), lambda p: p.write_text("mine")],
    ids=["pipe", "link", "folder", "text"],
)
def test_what_is_no_journal_is_refused_and_stays(tmp_path, make):
    path = tmp_path / "journal"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ConfigError, match="journal"):
        Journal.open(path)
    assert before is None or path.read_bytes() == before


def test_a_reader_of_a_journal_that_is_cut_meanwhile_ends_with_its_whole_records(tmp_path):
    path = tmp_path / "journal"
    offsets = written(path, *(b"x" * (1 << 20) for _ in range(5)))
    frames = read_journal(path)
    next(frames)
    os.truncate(path, offsets[4] + 100)
    assert sum(1 for _ in frames) == 3
    with open(path, "rb") as file:
        assert record_at(file, offsets[3]) == b"x" * (1 << 20)
        with pytest.raises(PenstockError, match="was cut while it was read"):
            record_at(file, offsets[4])


def test_work_is_committed_once_it_is_due(tmp_path):
    now = 0.0
    path = tmp_path / "journal"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    with mock.patch.object(journals.os, "fsync", wraps=os.fsync) as synced:
        journal = Journal(path, file, 0, 1.0, clock=lambda: now)
        journal.append(b"one")
        assert not synced.called and journal.seconds_until_commit == 1
        now = 1.0
        journal.append(b"two")
        assert synced.call_count == 1
        journal.close()
    assert [found.record for found in read_journal(path)] == [b"one", b"two"]
