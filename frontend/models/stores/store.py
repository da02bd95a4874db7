"""The interface of a store: models under names with the store's prefix, each with its GGUF files."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ....protocol.files.user_folders import homes
from ..gguf.find import GgufFiles

# A part of a name becomes a part of a path: none may lead out of the store, or to a hidden file.
_PART = re.compile(r"\w[\w.+-]{0,199}")
_MOST_ENTRIES = 10_000


class Store(Protocol):
    """The interface of each store's module."""

    PREFIX: str  # of its models' names
    FORM: str  # an example of such a name

    def places(self, name: str) -> list[Path]:
        """Paths where a model of this name may be; empty for an impossible name."""

    def names(self) -> Iterator[tuple[str, Path]]:
        """The names of all models, with their paths."""

    def read(self, name: str, path: Path) -> GgufFiles:
        """The model's files; raises `ConfigError` if it can't be read, `FileNotFoundError` if there is nothing."""


def is_part(name: str) -> bool:
    return _PART.fullmatch(name) is not None


def under_homes(*folders: str) -> list[Path]:
    """The folders with these names in this user's homes."""
    return [home / folder for home in homes() for folder in folders]


def entries(folder: Path) -> Iterator[Path]:
    """The entries of a folder, sorted by name; empty if it can't be read."""
    with suppress(OSError):
        found = [path for path, _ in zip(folder.iterdir(), range(_MOST_ENTRIES))]
        yield from sorted(path for path in found if is_part(path.name))
