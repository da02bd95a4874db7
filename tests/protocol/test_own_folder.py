"""What carries our mark is ours to remove, and nothing else is: neither what has our name, nor what a link leads to."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.cases import for_each

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
