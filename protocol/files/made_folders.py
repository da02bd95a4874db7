"""Folders that are made of something once and kept in Penstock's cache, each under a digest of what it was made of.

A folder appears whole or not at all, whoever makes the same at the same time. Those that were used least recently are
removed.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .cache_folder import cache_folder
from .own_folder import HeldFolder, is_own, make_own, remove_own

KEPT = 32


@dataclass(frozen=True)
class MadeFolders:
    """Those of one kind."""

    within: str  # the folder of the cache that they lie in
    mark: str  # of one that is complete
    unfinished: str  # of one that isn't
    needed: str  # the file without which it is made again

    @property
    def place(self) -> Path:
        return cache_folder() / self.within

    def made_before(self, key: str) -> Path | None:
        """Where it lies, if it was made and is still there."""
        found = self.place / key
        return found if is_own(found, self.mark) else None

    def folder(self, key: str, make: Callable[[Path], None]) -> Path:
        """The folder under this digest; `make` fills it unless it was made before. Raises OSError where it can't be
        kept."""
        place = self.place
        target = place / key
        if is_own(target, self.mark) and (target / self.needed).is_file():
            with suppress(OSError):
                os.utime(target)  # used last, removed last
            return target
        place.mkdir(mode=0o700, exist_ok=True)
        self.remove(target)  # somebody has taken its files away
        self._make_into(target, make)
        with suppress(OSError):  # another process may remove the same
            self.remove_oldest()
        return target

    def remove(self, folder: Path) -> None:
        remove_own(folder, self.mark)

    def remove_oldest(self) -> None:
        made = [path for path in self.place.iterdir() if is_own(path, self.mark)]
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
                if not is_own(target, self.mark):  # else another process was faster
                    raise
        finally:
            making.remove()
