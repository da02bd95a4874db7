"""Files that are mapped into memory, each when it is first read.

Pages read from a mapped file count as this process's memory until it is unmapped, so all files are remapped after so
many bytes: loading a model takes little more than its packed weights. Files stay open, so that a later mapping is of
the same file even if its name has been replaced.
"""

from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Generic, TypeVar

from ....protocol.files.model_file import require_regular

_MOST_READ = 64 << 20  # bytes before the files are remapped

Mapped = TypeVar("Mapped")


class Mappings(Generic[Mapped]):
    def __init__(self, map: Callable[[Path, BufferedReader], Mapped]) -> None:
        self._map = map
        self._open: dict[Path, BufferedReader] = {}
        self._mapped: dict[Path, Mapped] = {}
        self._num_read = 0  # bytes since the last mapping

    def of(self, path: Path) -> Mapped:
        if path not in self._mapped:
            if path not in self._open:
                require_regular(path)
                self._open[path] = open(path, "rb")
            self._mapped[path] = self._map(path, self._open[path])
        return self._mapped[path]

    def count(self, nbytes: int) -> None:
        """Count bytes read from the mapped files."""
        self._num_read += nbytes
        if self._num_read > _MOST_READ:
            # Views still in use keep their mapping alive.
            self._mapped.clear()
            self._num_read = 0
