"""One step: its rows while they are gathered, the `StepPlan` made of them, and the record to match its result with.

Knows nothing of why a row is in it.
"""

from collections.abc import Sequence as Columns
from itertools import repeat

from ..protocol.messages import NewSlot, StepPlan, column
from .request import Sequence


class Step:
    __slots__ = ("number", "rows", "slots", "num_tokens", "new", "_added")

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: list[Sequence] = []
        self.slots: list[int] = []
        self.num_tokens: list[int] = []
        self.new: list[NewSlot] = []
        self._added: list[tuple[int, Columns[int]]] = []  # (row, blocks appended to its table), by row

    def add_decodes(self, sequences: list[Sequence], new_blocks: dict[int, int]) -> None:
        """One token for each; `new_blocks` is by slot."""
        slots = [sequence.slot for sequence in sequences]
        if new_blocks:
            self._added += [(row, (new_blocks[slot],)) for row, slot in enumerate(slots) if slot in new_blocks]
        self.rows += sequences
        self.slots += slots
        self.num_tokens += [1] * len(sequences)

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """A chunk of a sequence whose table stands."""
        self.rows.append(sequence)
        self.slots.append(sequence.slot)
        self.num_tokens.append(num_tokens)

    def add_new(self, sequence: Sequence, num_tokens: int, new: NewSlot) -> None:
        """The first chunk of a sequence that enters its slot, and its whole table."""
        self._added.append((len(self.rows), sequence.block_ids))
        self.new.append(new)
        self.add(sequence, num_tokens)

    def plan(self, freed: list[int]) -> StepPlan:
        block_ids, offsets = self._block_columns()
        return StepPlan(
            step=self.number,
            slots=column(self.slots),
            num_tokens=column(self.num_tokens),
            block_ids=column(block_ids),
            block_offsets=column(offsets),
            freed=column(freed),
            new=self.new,
        )

    def _block_columns(self) -> tuple[list[int], list[int]]:
        block_ids: list[int] = []
        offsets: list[int] = []
        # Offsets up to and with a row that gets blocks are what was there before it.
        for row, blocks in self._added:
            offsets.extend(repeat(len(block_ids), row + 1 - len(offsets)))
            block_ids += blocks
        offsets.extend(repeat(len(block_ids), len(self.rows) + 1 - len(offsets)))
        return block_ids, offsets
