"""The segments of one kind of block on one rank: which block is in which file, and the bound on all files.

Other processes write and remove segments at the same time, in this folder and in others below the same root. Nothing
is locked against that: a file that has gone is a miss, and a new one is found when the folder is looked at again.
"""

import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ...protocol.files.prefix_folder import SEGMENT, UNFINISHED, remove_oldest, remove_segment
from ...protocol.layer_groups import media_group
from .segment import READING, DamagedSegment, Segment, make_way

_LOG = logging.getLogger(__name__)
_KEPT_SHARE = 0.9  # of the bound, after segments had to be removed, so that this is rarely necessary

Location = tuple[Segment, int]  # and the block's number in it


class SegmentFolder:
    """Any thread may call any method."""

    LEAST_FREE = 1 << 30  # bytes of the disk that stay free

    def __init__(self, folder: Path, most_bytes: int, time_to_live: float | None = None) -> None:
        self.folder = folder
        self.block_bytes: Sequence[int] = ()  # of the rank's groups; a segment of anything else is damaged
        self._most_bytes = most_bytes
        self._time_to_live = time_to_live
        self._segments: dict[str, Segment] = {}  # by file name
        self._damaged: set[str] = set()
        self._locations: dict[tuple[int, bytes], Location] = {}
        self._seen_ns = -1  # the folder's time of change when it was last looked at
        self._lock = threading.RLock()
        self._bytes_left = -1  # that may be written before all files are counted again

    def refresh(self) -> tuple[list[Segment], list[Segment]]:
        """Look at the folder if it has changed. Returns the segments that are new, and those that have gone."""
        changed_ns = os.stat(self.folder).st_mtime_ns
        if changed_ns == self._seen_ns:
            return [], []
        names = {name for name in os.listdir(self.folder) if name.endswith(SEGMENT)}
        self._seen_ns = changed_ns
        found = [segment for name in names - self._segments.keys() - self._damaged if (segment := self._read(name))]
        with self._lock:
            gone = [segment for name, segment in self._segments.items() if name not in names]
            for segment in gone:
                self._remove(segment)
            for segment in found:
                self.add(segment)
        return found, gone

    def _read(self, name: str) -> Segment | None:
        try:
            segment = Segment.read(self.folder / name)
            self._refuse_foreign(segment)
            return segment
        except FileNotFoundError:
            return None
        except (DamagedSegment, OSError) as error:
            _LOG.warning("Ignoring kept prefixes in %s (%s); they will be recomputed", self.folder / name, error)
            self._damaged.add(name)
            with suppress(OSError):
                remove_segment(self.folder / name)
            return None

    def _refuse_foreign(self, segment: Segment) -> None:
        """Raise unless the rank has this group, with such blocks; media's rows have any length, and one key."""
        if not 0 <= segment.group <= media_group(len(self.block_bytes)):
            raise DamagedSegment(f"the model has no group {segment.group}")
        if segment.group == media_group(len(self.block_bytes)):
            if len(segment.keys) != 1 or segment.block_bytes <= 0:
                raise DamagedSegment("it is no medium's")
        elif segment.block_bytes != self.block_bytes[segment.group]:
            raise DamagedSegment(f"its blocks have {segment.block_bytes:,} bytes")

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.path.name] = segment
            for index, key in enumerate(segment.keys):
                self._locations[segment.group, key] = segment, index

    def find(self, group: int, key: bytes) -> Location | None:
        with self._lock:
            found = self._locations.get((group, key))
        if found is not None and self._time_to_live is not None and self._age(found[0]) >= self._time_to_live:
            return None
        return found

    def drop(self, segment: Segment) -> None:
        """Remove a segment and its file, which is damaged, has expired or isn't to be found any more."""
        with suppress(OSError):
            remove_segment(segment.path)
        self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        with self._lock:
            self._segments.pop(segment.path.name, None)
            for key in segment.keys:
                at = segment.group, key
                if at in self._locations and self._locations[at][0] is segment:
                    del self._locations[at]

    def use(self, group: int, key: bytes) -> None:
        """Count the chain that ends with this block as used now, its beginning last: it is worth the most."""
        seen: set[str] = set()
        while (found := self.find(group, key)) is not None and found[0].path.name not in seen:
            segment = found[0]
            seen.add(segment.path.name)
            with suppress(OSError):
                os.utime(segment.path)
            key = segment.previous

    def make_room(self, num_bytes: int) -> bool:
        """Remove the least recently used segments of all kinds if so many more bytes would be too many. False if they
        can't be kept at all."""
        free = shutil.disk_usage(self.folder).free
        if num_bytes > self._most_bytes or free < num_bytes + self.LEAST_FREE:
            return False
        if num_bytes > self._bytes_left:
            root = self.folder.parent
            taken = remove_oldest(root, self._most_bytes - num_bytes)
            if taken + num_bytes > _KEPT_SHARE * self._most_bytes:
                taken = remove_oldest(root, max(0, int(_KEPT_SHARE * self._most_bytes) - num_bytes))
            # Others write, too: count again after a part of what is left.
            self._bytes_left = (self._most_bytes - taken) // 4
        self._bytes_left -= num_bytes
        return True

    def remove_abandoned(self) -> None:
        """Remove files whose writers have ended."""
        for path in self.folder.glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                make_way(path)
                file = os.open(path, READING)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(file)

    @staticmethod
    def _age(segment: Segment) -> float:
        try:
            return time.time() - os.stat(segment.path).st_mtime
        except OSError:
            return float("inf")


def keys_by_group(segments: Iterable[Segment]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for segment in segments:
        found.setdefault(segment.group, []).extend(segment.keys)
    return found
