"""What a store is: models under names that begin with the store's, each with its GGUF files."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ....protocol.files.user_folders import homes
from ..gguf.find import GgufFiles

# A part of a name becomes a part of a path: none leads out of the store, or to a hidden file.
_PART = re.compile(r"\w[\w.+-]{0,199}")
_MOST_ENTRIES = 10_000


class Store(Protocol):
    """What each module of a store has."""

    PREFIX: str  # of its models' names
    FORM: str  # what such a name looks like

    def places(self, name: str) -> list[Path]:
        """Where a model of this name may lie; nowhere if it can't be a name."""

    def names(self) -> Iterator[tuple[str, Path]]:
        """Of all models there are, with their places."""

    def read(self, name: str, place: Path) -> GgufFiles:
        """Raises `ConfigError` where it can't be read, `FileNotFoundError` where there is nothing."""


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
