"""One step: collects its rows, makes the `StepPlan` of them, and is kept to match the result with."""

from array import array
from collections.abc import Sequence as Columns
from itertools import repeat

from ..protocol.layer_groups import GroupChanges
from ..protocol.messages import ForcedTokens, Fork, NewSlot, StepPlan, column
from .memory.offload import Moves
from .request import Sequence


class ScheduledStep:
    __slots__ = (
        "number", "rows", "slots", "num_tokens", "new", "forks", "copies", "decided", "forced", "masked",
        "dropped", "is_paced", "has_pause", "num_decodes", "_added",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: list[Sequence] = []
        self.slots: list[int] = []
        self.num_tokens: list[int] = []
        self.new: list[NewSlot] = []
        self.forks: list[Fork] = []
        self.copies: list[int] = []  # pairs of source block, target block
        self.decided: list[ForcedTokens] = []  # tokens that a worker is given instead of sampling them
        self.forced: dict[Sequence, array[int]] = {}  # those of them that come with this step's result
        self.masked: list[int] = []  # rows
        self.dropped: set[Sequence] = set()  # sequences whose results don't count: their masks did not come in time
        self.is_paced = False  # prompts were held back for streamed answers
        self.has_pause = False  # and yet it takes longer than they should wait
        self.num_decodes = 0  # rows that come before those of prompts
        self._added: list[tuple[int, Columns[int]]] = []  # (row, blocks appended to its table), by row

    def add_decodes(self, sequences: list[Sequence], new_blocks: dict[Sequence, int]) -> None:
        """Add one token for each sequence, and a block for some."""
        if new_blocks:
            self._added += [(row, (new_blocks[each],)) for row, each in enumerate(sequences) if each in new_blocks]
        self.rows += sequences
        self.slots += [sequence.slot for sequence in sequences]
        self.num_tokens += [1] * len(sequences)

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """Add a chunk of a sequence that already has its slot and table."""
        self.rows.append(sequence)
        self.slots.append(sequence.slot)
        self.num_tokens.append(num_tokens)

    def add_new(self, sequence: Sequence, num_tokens: int, new: NewSlot) -> None:
        """Add the first chunk of a sequence that enters its slot, with its whole table."""
        self._added.append((len(self.rows), sequence.block_ids))
        self.new.append(new)
        self.add(sequence, num_tokens)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(self.num_tokens[self.num_decodes :])

    def fork(self, parent: Sequence, child: Sequence, copied: tuple[int, int] | None) -> None:
        self.forks.append(Fork(parent.slot, child.slot, child.sample, [column(child.block_ids)]))
        self.copies += copied or ()

    def decide(self, sequence: Sequence) -> None:
        """Send the workers its newest token, which the engine has chosen."""
        self.decided.append(ForcedTokens(sequence.slot, column(sequence.output[-1:])))

    def force(self, row: int, token_ids: "array[int]") -> None:
        """Let a row compute these tokens, too, before it samples."""
        self.forced[self.rows[row]] = token_ids
        self.decided.append(ForcedTokens(self.slots[row], token_ids.tobytes()))
        self.num_tokens[row] += len(token_ids)

    def plan(self, freed: list[int], moves: Moves) -> StepPlan:
        block_ids, offsets = self._block_columns()
        return StepPlan(
            step=self.number,
            slots=column(self.slots),
            num_tokens=column(self.num_tokens),
            groups=[
                GroupChanges(
                    block_ids=column(block_ids),
                    block_offsets=column(offsets),
                    copies=column(self.copies),
                    saves=column(moves.saves),
                    loads=column(moves.loads),
                )
            ],
            freed=column(freed),
            new=self.new,
            forced=self.decided,
            forks=self.forks,
            masked=column(self.masked),
        )

    def _block_columns(self) -> tuple[list[int], list[int]]:
        block_ids: list[int] = []
        offsets: list[int] = []
        # Rows up to and including one that gets blocks begin where the blocks before it end.
        for row, blocks in self._added:
            offsets.extend(repeat(len(block_ids), row + 1 - len(offsets)))
            block_ids += blocks
        offsets.extend(repeat(len(block_ids), len(self.rows) + 1 - len(offsets)))
        return block_ids, offsets


def new_slot(sequence: Sequence, rotation_start: int) -> NewSlot:
    prompt = sequence.request.prompt
    return NewSlot(
        slot=sequence.slot,
        token_ids=sequence.packed_tokens(0, sequence.num_known),
        num_prompt=sequence.num_prompt,
        num_computed=sequence.num_computed,
        params=sequence.params,
        seed=prompt.seed,
        sample=sequence.sample,
        adapter=sequence.request.adapter,
        rotation_start=rotation_start,
        num_candidates=sequence.decoding.num_candidates(sequence),
    )
