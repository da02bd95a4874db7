"""Somebody's own files, in a folder that Penstock is told to use, and a look whether any of them has changed.

Their names are those that a careless sweep would take for its own.
"""

import os
from pathlib import Path

_FOLDERS = ("thesis", "tests", "t12345678", "tabandoned", "weights", "tokenizers", "triton", "logs", "daemon", "notes")
_FILES = ("lock", "memory-lock", "engine", "launch", "chat-history.jsonl", "daemon.txt", "daemon.before.txt")
_NUM_LOGS = 60


def canaries(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _FOLDERS:
        (folder / name).mkdir()
        for file in (*_FILES, "abc.writing", "0123456789abcdef"):
            (folder / name / file).write_text(f"{name}/{file}, years of work\n")
        (folder / name / ".making-x").mkdir()
    for file in _FILES:
        (folder / file).write_text("years of work\n")
    for number in range(_NUM_LOGS):
        (folder / f"20200101-000000-{number:06}-1.log").write_text(f"run {number}\n")
    (folder / "link").symlink_to(folder / "thesis")
    # A checkout of the project, or what an older version has left.
    (folder / "penstock" / "tests").mkdir(parents=True)
    (folder / "penstock" / "tests" / "lock").write_text("")
    return folder


def contents(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of change and content of all that it holds but what carries our mark, and what lies in that."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not (Path(place) / name / ".penstock").exists()]
        for name in (*folders, *files):
            path = Path(place) / name
            status = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            text = path.read_text() if is_file else os.readlink(path) if path.is_symlink() else ""
            # A folder changes when something of ours appears in it; what a file holds never does.
            found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns if is_file else 0, text)
    return found
