"""Tracks copies of KV blocks in CPU memory, and plans the moves between there and the pool of blocks.

A cell holds one block's content and is found by the same key. Contents with one key are equal, so a cell is kept when a
block is loaded from it, and that block need not be saved again. Moves are sent with the next plan; workers apply its
saves, then its loads, and then compute. So the plan that overwrites a block may save its old content, and a plan may
load from a cell that it fills. The least recently used cell is overwritten first, but never one that the same plan
loads from.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .time_to_live import TimeToLive


class Moves(NamedTuple):
    """The moves of one plan, each a flat list of pairs."""

    saves: list[int]  # block, cell
    loads: list[int]  # cell, block


NO_MOVES = Moves([], [])


class Watched:
    """Keys that somebody may want to hear of."""

    on_stored: Callable[[bytes], None] | None = None
    on_forgotten: Callable[[bytes], None] | None = None


class SecondTierIndex(Watched):
    def __init__(self, num_cells: int, time_to_live: TimeToLive | None = None) -> None:
        self.num_cells = num_cells
        self._time_to_live = time_to_live
        self._last_use: dict[bytes, float] = {}  # by key of a cell
        self.num_saved = 0  # blocks saved since the start
        self.num_loaded = 0
        self._cells: OrderedDict[bytes, int] = OrderedDict()  # cells by key, the least recently used first
        self._free = list(range(num_cells - 1, -1, -1))
        # Kept until the next plan: block by cell, so that a cell filled twice is sent once.
        self._saves: dict[int, int] = {}
        self._loads: dict[int, int] = {}  # cell by block
        self._pinned: set[int] = set()

    def has(self, key: bytes) -> bool:
        """Whether a cell has this key."""
        if key not in self._cells:
            return False
        if self._time_to_live is None or self._cells[key] in self._pinned:  # a pinned cell is in use
            return True
        return not self._time_to_live.has_expired(self._last_use[key])

    def use(self, key: bytes) -> bool:
        """The same; the cell counts as used now. If it has expired, it loses its key."""
        if not self.has(key):
            self.forget(key)
            return False
        self._last_use[key] = 0.0 if self._time_to_live is None else self._time_to_live.clock()
        return True

    def offer(self, key: bytes, block: int, last_use: float = 0.0) -> None:
        """Save the content of a block that is about to be overwritten under its key, if there is a cell for it."""
        if key in self._cells:
            self._cells.move_to_end(key)
        elif (cell := self._cell_for_new()) is not None:
            self._cells[key] = cell
            self._saves[cell] = block
            if self.on_stored is not None:
                self.on_stored(key)
        else:
            return
        self._last_use[key] = last_use

    def pin(self, keys: Sequence[bytes]) -> None:
        """Keep these cells for the next plan, which loads them, whatever else is offered."""
        # From the tail, like the eviction of blocks: a chain's last cell is the least useful without its first.
        for key in reversed(keys):
            self._cells.move_to_end(key)
            self._pinned.add(self._cells[key])

    def load(self, key: bytes, block: int) -> None:
        """Load the block from the key's cell, which is pinned."""
        self._loads[block] = self._cells[key]

    def forget(self, key: bytes) -> None:
        """Remove the key, so that its content can no longer be found."""
        if (cell := self._cells.pop(key, None)) is not None:
            del self._last_use[key]
            self._saves.pop(cell, None)
            self._free.append(cell)
            if self.on_forgotten is not None:
                self.on_forgotten(key)

    def forget_where(self, is_gone: Callable[[bytes], bool]) -> None:
        for key in list(filter(is_gone, self._cells)):
            self.forget(key)

    def drop_expired(self) -> None:
        """Remove the keys of all cells whose time is over."""
        for key in [key for key in self._cells if not self.has(key)]:
            self.forget(key)

    def take_moves(self) -> Moves:
        """The moves for the next plan, ordered by cell: neighbours can be moved in one piece."""
        saves = [(block, cell) for cell, block in sorted(self._saves.items())]
        loads = sorted((cell, block) for block, cell in self._loads.items())
        self.num_saved += len(saves)
        self.num_loaded += len(loads)
        self._saves.clear()
        self._loads.clear()
        self._pinned.clear()
        return Moves([each for pair in saves for each in pair], [each for pair in loads for each in pair])

    def _cell_for_new(self) -> int | None:
        if self._free:
            return self._free.pop()
        # If the oldest cell is pinned, all cells left belong to this plan's own moves.
        oldest = next(iter(self._cells.values()), None)
        if oldest is None or oldest in self._pinned:
            return None
        key, cell = self._cells.popitem(last=False)
        del self._last_use[key]
        if self.on_forgotten is not None:
            self.on_forgotten(key)
        return cell

    def check(self) -> None:
        """Raise unless every cell is either free or found by one key, and only findable content is being moved."""
        found = list(self._cells.values())
        if sorted(found + self._free) != list(range(self.num_cells)):
            raise RuntimeError(f"Of {self.num_cells} cells, {found} are found and {self._free} are free.")
        if self._last_use.keys() != self._cells.keys():
            raise RuntimeError("The keys whose last use is known are not the keys that cells have.")
        if not self._saves.keys() <= set(found) or not self._pinned <= set(found):
            raise RuntimeError(f"Cells {[*self._saves, *self._pinned]} are on their way, and {found} are found.")
