"""Files that are mapped into memory, each when it is first read.

What was read of a mapped file counts as this process's memory until the mapping is given up, so all files are mapped
anew after so many bytes: loading a model takes no more than its packed weights and a little. Files stay open, so that a
mapping made later is of the same file, whatever has taken its name.
"""

from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Generic, TypeVar

from ....protocol.files.model_file import require_regular

_MOST_READ = 64 << 20  # bytes, before the files are mapped anew

Mapped = TypeVar("Mapped")


class Mappings(Generic[Mapped]):
    def __init__(self, map: Callable[[Path, BufferedReader], Mapped]) -> None:
        self._map = map
        self._open: dict[Path, BufferedReader] = {}
        self._mapped: dict[Path, Mapped] = {}
        self._num_read = 0  # bytes since they were mapped

    def of(self, path: Path) -> Mapped:
        if path not in self._mapped:
            if path not in self._open:
                require_regular(path)
                self._open[path] = open(path, "rb")
            self._mapped[path] = self._map(path, self._open[path])
        return self._mapped[path]

    def count(self, nbytes: int) -> None:
        """So many bytes were read of the mapped files."""
        self._num_read += nbytes
        if self._num_read > _MOST_READ:
            # Views that are still in use keep their own mapping.
            self._mapped.clear()
            self._num_read = 0
