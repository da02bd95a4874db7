"""Folders and files: what carries our mark is ours to remove and nothing else is; what isn't regular is refused, and
what never ends is not read.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.cases import for_each

from penstock.frontend.daemon.settings import read_settings
from penstock.protocol.errors import ConfigError
from penstock.protocol.files import model_file
from penstock.protocol.files.model_file import read_model_file, read_model_json, read_model_text, require_regular
from penstock.protocol.files.own_folder import (
    MARK,
    HeldFolder,
    is_own,
    is_own_file,
    lock_file,
    make_own,
    mark,
    new_file,
    own_folder,
    remove_abandoned,
    remove_own,
)
from penstock.protocol.files.owner_file import MOST_BYTES, read_owner_file

WHAT = "test"


def filled(folder: Path) -> Path:
    folder.mkdir()
    (folder / "chapter.txt").write_text("years of work")
    return folder


def our_own(folder: Path, what: str = WHAT) -> Path:
    make_own(folder, what)
    (folder / "half.txt").write_text("half")
    return folder


# What stands where a folder of ours would, by what it is.
FOREIGN = {
    "a folder": lambda path, target: filled(path),
    "a file": lambda path, target: path.write_text("years of work"),
    "a link": lambda path, target: path.symlink_to(target),
    "a link to one of ours": lambda path, target: path.symlink_to(our_own(target / "ours")),
    "a link to nothing": lambda path, target: path.symlink_to(target / "nothing"),
    "a pipe": lambda path, target: os.mkfifo(path),
    "one with another mark": lambda path, target: our_own(path, "something else"),
    "one with an empty mark": lambda path, target: (filled(path) / MARK).write_text(""),
    "one whose mark is a link": lambda path, target: (filled(path) / MARK).symlink_to(our_own(target / "ours") / MARK),
    "one whose mark is a pipe": lambda path, target: os.mkfifo(filled(path) / MARK),
    "one whose mark is a folder": lambda path, target: (filled(path) / MARK).mkdir(),
}


def everything_in(folder: Path) -> list[str]:
    return sorted(str(Path(place, name)) for place, *names in os.walk(folder) for group in names for name in group)


@for_each("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_is_not_ours_is_never_taken_cleared_or_removed(make, tmp_path):
    target = filled(tmp_path / "target")
    make(tmp_path / "penstock", target)
    before = everything_in(tmp_path)
    assert not is_own(tmp_path / "penstock", WHAT)
    assert not remove_own(tmp_path / "penstock", WHAT)
    remove_abandoned(tmp_path, "p", WHAT)
    with pytest.raises(FileExistsError):
        make_own(tmp_path / "penstock", WHAT)
    with pytest.raises(FileExistsError):
        HeldFolder(tmp_path / "penstock", WHAT)
    assert everything_in(tmp_path) == before
    assert own_folder(tmp_path, "penstock", WHAT) == tmp_path / "penstock-2"
    assert own_folder(tmp_path, "penstock", WHAT) == tmp_path / "penstock-2", "found again"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_is_not_ours_whatever_it_carries(tmp_path):
    our_own(tmp_path / "penstock")
    for path in (tmp_path / "penstock", tmp_path / "penstock" / MARK):
        before = everything_in(tmp_path)
        os.chown(path, 4242, 4242)
        assert not remove_own(tmp_path / "penstock", WHAT)
        assert everything_in(tmp_path) == before
        assert own_folder(tmp_path, "penstock", WHAT) == tmp_path / "penstock-2"
        os.chown(path, 0, 0)
        assert remove_own(tmp_path / "penstock-2", WHAT)


def test_an_empty_folder_and_one_with_a_half_written_mark_become_ours(tmp_path):
    for number, content in enumerate((None, b"", mark(WHAT)[:20])):
        folder = tmp_path / str(number)
        folder.mkdir()
        if content is not None:
            (folder / MARK).write_bytes(content)
        assert own_folder(tmp_path, str(number), WHAT) == folder
        assert is_own(folder, WHAT)


def test_a_folder_that_is_used_again_looks_new_to_what_removes_old_files(tmp_path):
    for taken in ("penstock", "penstock-2"):
        marked = own_folder(tmp_path, "penstock", WHAT) / MARK
        os.utime(marked, (0, 0))
        before = time.time() - 1  # timestamps are those of the last tick
        assert own_folder(tmp_path, "penstock", WHAT) / MARK == marked == tmp_path / taken / MARK
        assert min(marked.stat().st_atime, marked.stat().st_mtime) > before
        marked.write_text("somebody else's")


def test_many_that_start_at_once_agree_on_one_folder_and_never_sweep_a_held_one(tmp_path):
    def hold_and_sweep(_: int) -> bool:
        held = HeldFolder.new(tmp_path, "t", WHAT)
        (held.path / "socket").write_text("")
        remove_abandoned(tmp_path, "t", WHAT)
        is_there = (held.path / "socket").exists()
        held.remove()
        return is_there

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(hold_and_sweep, range(400)))
        assert everything_in(tmp_path) == []
        for number in range(30):
            made = threads.map(lambda _, name=str(number): own_folder(tmp_path, name, WHAT), range(16))
            assert set(made) == {tmp_path / str(number)}


def test_a_held_folder_stays_and_one_whose_holder_was_killed_is_removed(tmp_path):
    held = HeldFolder.new(tmp_path, "t", WHAT)
    code = (
        "import sys; from pathlib import Path; from penstock.protocol.files.own_folder import HeldFolder\n"
        f"held = HeldFolder.new(Path({str(tmp_path)!r}), 't', {WHAT!r}); print(held.path.name, flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        theirs = tmp_path / other.stdout.readline().strip()
        remove_abandoned(tmp_path, "t", WHAT)
        assert theirs.is_dir() and held.path.is_dir()
        with pytest.raises(BlockingIOError):
            HeldFolder(theirs, WHAT)
        other.send_signal(signal.SIGKILL)
    remove_abandoned(tmp_path, "t", WHAT)
    assert not theirs.exists() and held.path.is_dir()
    held.remove()
    held.remove()
    assert everything_in(tmp_path) == []


def test_a_file_is_ours_by_its_first_lines(tmp_path):
    new_file(tmp_path / "ours", WHAT)
    with open(tmp_path / "ours", "a") as file:
        file.write("a line\n")
    (tmp_path / "foreign").write_text("penstock: test\n")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    os.mkfifo(tmp_path / "pipe")
    names = ("ours", "foreign", "link", "pipe", "nothing")
    assert [is_own_file(tmp_path / name, WHAT) for name in names] == [True, False, False, False, False]
    with pytest.raises(FileExistsError):
        new_file(tmp_path / "foreign", WHAT)


def test_neither_a_removal_nor_a_lock_follows_a_link(tmp_path):
    target, ours = filled(tmp_path / "target"), our_own(tmp_path / "ours")
    (ours / "link").symlink_to(target)
    (ours / "folder").mkdir()
    (ours / "folder" / "link").symlink_to(target)
    assert remove_own(ours, WHAT)
    assert not ours.exists()
    (tmp_path / "lock").symlink_to(target / "chapter.txt")
    with pytest.raises(OSError):
        lock_file(tmp_path / "lock")
    os.close(lock_file(target / "chapter.txt"))
    assert (target / "chapter.txt").read_text() == "years of work"


# --- files that a model's folder or an owner names -------------------------------------------------------------------


KINDS = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a file without end": lambda path: path.touch() or os.truncate(path, 1 << 36),
}


@for_each("kind", KINDS)
def test_what_is_no_file_of_a_model_is_refused_by_name(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = Path("file")
    KINDS[kind](path)
    regular = [require_regular] if kind != "a file without end" else []
    for read in [read_model_file, read_model_text, read_model_json, *regular]:
        with pytest.raises(ConfigError, match="^file cannot be used: "):
            read(path)


def test_a_file_that_grows_while_it_is_read_is_read_no_further_than_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "MOST_BYTES", 1000)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert len(read_model_file(path)) == 1000
    growing = Path("/proc/self/smaps")  # a regular file of no size
    with pytest.raises(ConfigError, match="longer than"):
        read_model_file(growing)


@for_each("content", [b"{", b"\xff{}", b"[" * 100_000, b"nothing"])
def test_what_is_not_json_is_refused_by_name_and_a_file_that_is_not_there_is_the_callers_affair(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match="file is n"):
        read_model_json(tmp_path / "file")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    for read in (read_model_file, read_model_text, read_model_json, require_regular):
        for name in ("nothing", "broken"):
            with pytest.raises(FileNotFoundError):
                read(tmp_path / name)


def test_an_owners_file_may_be_a_pipe_which_is_read_to_its_end_and_one_without_end_is_refused():
    reading, writing = os.pipe()
    os.write(writing, b"keep_alive = 3\n")
    os.close(writing)
    assert read_owner_file(f"/dev/fd/{reading}") == b"keep_alive = 3\n"
    os.close(reading)
    for device in ("/dev/zero", "/dev/full"):
        with pytest.raises(ConfigError, match=f"{device} is longer than {MOST_BYTES >> 20} MiB"):
            read_settings(device, [], {}, {}, None)
