"""Reads the blocks of an order from their files: with several threads while no step needs the processor, else with one.

The threads share the copying and, in a tree that has just started, the first touch of the blocks' memory, which takes
longer than the copying. A thread takes a few blocks of one file at a time; answers keep the order's order.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...protocol.layer_groups import FetchBlocks, keys_in
from ...protocol.wire import values
from ...records import dataclass
from .segment import DamagedSegment, Segment
from .segment_folder import SegmentFolder
from .staging import Staging

_BUSY_CHECK_SECONDS = 0.02  # between two looks whether steps are still running
_RUN_BYTES = 8 << 20  # at most, unless a block is larger


@dataclass(eq=False)
class _Run:
    """Some blocks of an order that lie in one file, or that no file has."""

    segment: Segment | None
    indices: list[int]  # of the blocks in the file
    block_ids: list[int]
    are_there: bytes = b""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.is_done = threading.Event()


class BlockReader:
    def __init__(
        self,
        folder: SegmentFolder,
        stagings: Sequence[Staging],
        is_busy: Callable[[], bool],
        drop: Callable[[Segment, str], None],
    ) -> None:
        """`stagings`: one for each thread; `drop` gets a damaged file, and why it is one."""
        self._folder = folder
        self._stagings = stagings
        self._is_busy = is_busy
        self._drop = drop

    def block_bytes(self, group: int) -> int:
        return self._stagings[0].block_bytes(group)

    def read(self, order: FetchBlocks) -> Iterator[bytes]:
        """Read the blocks. Yields for some of them at a time whether each was there and intact."""
        runs = self._runs(order)
        left = deque(runs)
        readers = [
            threading.Thread(target=self._read_when_idle, args=(left, staging), daemon=True)
            for staging in self._stagings[1 : len(runs)]
        ]
        for reader in readers:
            reader.start()
        for run in runs:
            while not run.is_done.is_set():
                if not self._read_next(left, self._stagings[0]):
                    run.is_done.wait()
            if run.error is not None:
                raise run.error
            yield run.are_there
        for reader in readers:
            reader.join()

    def _runs(self, order: FetchBlocks) -> list[_Run]:
        runs: list[_Run] = []
        for group, key, block in zip(values(order.groups), keys_in(order.keys), values(order.block_ids), strict=True):
            segment, index = self._folder.find(group, key) or (None, 0)
            most = max(1, _RUN_BYTES // self.block_bytes(group))
            if not runs or runs[-1].segment is not segment or len(runs[-1].indices) >= most:
                runs.append(_Run(segment, [], []))
            runs[-1].indices.append(index)
            runs[-1].block_ids.append(block)
        return runs

    def _read_when_idle(self, left: deque[_Run], staging: Staging) -> None:
        while left:
            if self._is_busy():
                time.sleep(_BUSY_CHECK_SECONDS)
            else:
                self._read_next(left, staging)

    def _read_next(self, left: deque[_Run], staging: Staging) -> bool:
        """Read the next run that nobody has begun; False if there is none."""
        try:
            run = left.popleft()
        except IndexError:
            return False
        try:
            run.are_there = bytes(self._read_run(run, staging))
        except BaseException as error:
            run.error = error
        run.is_done.set()
        return True

    def _read_run(self, run: _Run, staging: Staging) -> Iterable[bool]:
        if (segment := run.segment) is None:
            return [False] * len(run.block_ids)
        are_there: list[bool] = []
        cell = staging.cell(segment.group)
        try:
            with segment.opened() as file:
                for index, block in zip(run.indices, run.block_ids, strict=True):
                    are_there.append(segment.read_block(file, index, cell))
                    if are_there[-1]:
                        staging.load(segment.group, block)
                    else:
                        self._drop(segment, "the checksum of a block differs")
        except (DamagedSegment, OSError) as error:
            self._drop(segment, str(error))
        return are_there + [False] * (len(run.block_ids) - len(are_there))
