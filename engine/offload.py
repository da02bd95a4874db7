"""Which KV blocks have a copy in CPU memory, and what is to be moved between there and the pool of blocks.

A cell holds one block's content and is found by the same key. Contents with one key are equal, so a cell is kept when
a block is loaded from it, and that block need not be saved again. What moves is told with the next plan; workers apply
its saves, then its loads, and then compute: so the plan that overwrites a block may save what it held, and a plan may
load from a cell that it fills. The least recently used cell is overwritten first, but none that the same plan loads
from. Knows nothing of sequences, and of what lies in a block.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class Moves(NamedTuple):
    """Of one plan, each a list of pairs one after another."""

    saves: list[int]  # block, cell
    loads: list[int]  # cell, block


class SecondTierIndex:
    def __init__(self, num_cells: int) -> None:
        self.num_cells = num_cells
        self.num_saved = 0  # blocks, since the start
        self.num_loaded = 0
        self._cells: OrderedDict[bytes, int] = OrderedDict()  # the least recently used first
        self._free = list(range(num_cells - 1, -1, -1))
        # Until the next plan. Told by cell, so that a cell that is filled twice is told once.
        self._saves: dict[int, int] = {}
        self._loads: dict[int, int] = {}  # cell by block
        self._pinned: set[int] = set()

    def holds(self, key: bytes) -> bool:
        return key in self._cells

    def offer(self, key: bytes, block: int) -> None:
        """The block is about to get other content: keep what the key names, if there is a cell for it."""
        if key in self._cells:
            self._cells.move_to_end(key)
        elif (cell := self._cell_for_new()) is not None:
            self._cells[key] = cell
            self._saves[cell] = block

    def pin(self, keys: Sequence[bytes]) -> None:
        """These will be loaded by the next plan, whatever else is offered to it."""
        # From the tail, as blocks are evicted: a chain's last cell is the least useful without its first.
        for key in reversed(keys):
            self._cells.move_to_end(key)
            self._pinned.add(self._cells[key])

    def load(self, key: bytes, block: int) -> None:
        """Fill the block with what the key names, which is pinned."""
        self._loads[block] = self._cells[key]

    def forget(self, key: bytes) -> None:
        """What the key names can no longer be found."""
        if (cell := self._cells.pop(key, None)) is not None:
            self._saves.pop(cell, None)
            self._free.append(cell)

    def take_moves(self) -> Moves:
        """What the next plan must tell, in the order of cells: neighbours can be moved in one piece."""
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
        # Where the oldest is pinned, only what this same plan moves is left.
        oldest = next(iter(self._cells.values()), None)
        if oldest is None or oldest in self._pinned:
            return None
        return self._cells.popitem(last=False)[1]

    def check(self) -> None:
        """Raise unless every cell is either free or found by one key, and only what is found is on its way."""
        found = list(self._cells.values())
        if sorted(found + self._free) != list(range(self.num_cells)):
            raise RuntimeError(f"Of {self.num_cells} cells, {found} are found and {self._free} are free.")
        if not self._saves.keys() <= set(found) or not self._pinned <= set(found):
            raise RuntimeError(f"Cells {[*self._saves, *self._pinned]} are on their way, and {found} are found.")
