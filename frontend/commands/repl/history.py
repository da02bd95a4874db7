"""The input history of earlier chats, for the arrow keys: one JSON string a line, so that a message may have several.

The file lies in the user's state folder, readable by nobody else; the oldest entries are dropped when it is read.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

from ...console.logs import state_folder

_KEPT = 1000


def history_file() -> Path:
    """The null device where nothing can be kept."""
    try:
        return state_folder() / "chat-history.jsonl"
    except OSError:
        return Path(os.devnull)


def read_history(path: Path) -> list[str]:
    """Oldest first; a file that is missing or damaged gives what can be read of it."""
    entries: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return entries
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, str):
                entries.append(entry)
    if len(entries) > _KEPT:
        entries = entries[-_KEPT:]
        _replace(path, entries)
    return entries


def add_to_history(path: Path, entry: str) -> None:
    """Appended at once, so that two chats share one file. A folder that cannot be written keeps no history."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=_private) as file:
            file.write(json.dumps(entry) + "\n")


def _replace(path: Path, entries: list[str]) -> None:
    with suppress(OSError):
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        with open(fresh, "w", encoding="utf-8", opener=_private) as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        fresh.replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)
