"""Folders in Penstock's cache that are made once from some source, each named by a digest of that source.

A folder appears whole or not at all, even if several processes make it at once. The least recently used ones are
removed.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...records import dataclass
from .cache_folder import cache_folder
from .own_folder import HeldFolder, is_own, make_own, remove_own

KEPT = 32


@dataclass(frozen=True)
class MadeFolders:
    """The folders of one kind."""

    within: str  # the cache's folder for them
    mark: str  # the mark of a complete one
    unfinished: str  # the mark of an unfinished one
    needed: str  # the file without which it is made again

    @property
    def parent(self) -> Path:
        return cache_folder() / self.within

    def made_before(self, key: str) -> Path | None:
        """The folder's path, if it was made and still exists."""
        found = self.parent / key
        return found if is_own(found, self.mark) else None

    def folder(self, key: str, make: Callable[[Path], None]) -> Path:
        """The folder with this digest; `make` fills it unless it exists. Raises OSError if it can't be kept."""
        parent = self.parent
        target = parent / key
        if is_own(target, self.mark) and (target / self.needed).is_file():
            with suppress(OSError):
                os.utime(target)  # least recently used are removed first
            return target
        parent.mkdir(mode=0o700, exist_ok=True)
        self.remove(target)  # somebody has removed its files
        self._make_into(target, make)
        with suppress(OSError):  # another process may remove the same
            self.remove_oldest()
        return target

    def remove(self, folder: Path) -> None:
        remove_own(folder, self.mark)

    def remove_oldest(self) -> None:
        made = [path for path in self.parent.iterdir() if is_own(path, self.mark)]
        for path in sorted(made, key=lambda path: path.stat().st_mtime)[:-KEPT]:
            self.remove(path)

    def _make_into(self, target: Path, make: Callable[[Path], None]) -> None:
        making = HeldFolder.new(target.parent, ".making-", self.unfinished)
        try:
            made = making.path / "made"
            make_own(made, self.mark)
            make(made)
            try:
                made.rename(target)
            except OSError:
                if not is_own(target, self.mark):  # otherwise another process was faster
                    raise
        finally:
            making.remove()
