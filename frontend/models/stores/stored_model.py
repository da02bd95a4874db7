"""What every store has: a model under a name that begins with the store's, and its GGUF files."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ....protocol.files.user_folders import homes

SUFFIX = ".gguf"
# A part of a name becomes a part of a path: none leads out of the store, or to a hidden file.
_PART = re.compile(r"\w[\w.+-]{0,199}")
_MOST_ENTRIES = 10_000


class StoredModel(NamedTuple):
    """A model in a store."""

    name: str  # as `LLM` takes it
    files: tuple[Path, ...]  # its parts in order
    projector: Path | None = None  # what it sees with

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in (*self.files, *([self.projector] if self.projector else [])))


def stands_beside(path: Path) -> bool:
    """Whether it is no model: what one sees with, or what quantizing needs."""
    return any(word in path.name.lower() for word in ("mmproj", "imatrix"))


def projector_in(folder: Path) -> Path | None:
    found = (path for path in entries(folder) if path.suffix == SUFFIX and "mmproj" in path.name.lower())
    return next(found, None)


def is_part(name: str) -> bool:
    return _PART.fullmatch(name) is not None


def under_homes(*folders: str) -> list[Path]:
    """The folders of these names in the homes of this user."""
    return [home / folder for home in homes() for folder in folders]


def entries(folder: Path) -> Iterator[Path]:
    """What lies in a folder, sorted by name; nothing where it can't be read."""
    with suppress(OSError):
        found = [path for path, _ in zip(folder.iterdir(), range(_MOST_ENTRIES))]
        yield from sorted(path for path in found if is_part(path.name))
