"""Completes the line being typed on Tab: names of commands, and the arguments that a command suggests."""

import os
import readline
from collections.abc import Callable, Iterator

Complete = Callable[[str], list[str]]  # a line's beginning → its possible completions


def readline_completer(complete: Complete) -> Callable[[str, int], str | None]:
    """Adapt to readline's calls: the last word's first, second, … completion, until there is none."""
    found: list[str] = []

    def completer(word: str, state: int) -> str | None:
        if state == 0:
            line = readline.get_line_buffer().encode()  # readline counts bytes
            start, end = readline.get_begidx(), readline.get_endidx()
            before = len(line[:start].decode(errors="replace"))
            found[:] = [each[before:] for each in complete(line[:end].decode(errors="replace"))]
        return found[state] if state < len(found) else None

    return completer


def paths(beginning: str) -> Iterator[str]:
    """Files and folders whose names begin this way; hidden ones only if the dot was typed."""
    folder, name = os.path.split(beginning)
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
            yield os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")


def folders(beginning: str) -> Iterator[str]:
    return (path for path in paths(beginning) if path.endswith("/"))
