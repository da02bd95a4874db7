"""One step: its token budget, its rows, and the `StepPlan` made from them; it is kept until its result arrives."""

import math
from array import array
from dataclasses import dataclass
from itertools import repeat

from ..protocol.layer_groups import DiskOrders, GroupChanges, SpareStates
from ..protocol.media import Encode, MediaRows
from ..protocol.messages import ChunkLayers, ForcedTokens, Fork, NewSlot, StepPlan
from ..protocol.wire import column, values
from .memory.cache import Additions, ForkedTables, together
from .memory.offload import NO_MOVES, Moves
from .request import Sequence

_INT = len(column([0]))


@dataclass(slots=True)
class Allowance:
    """How many prompt tokens a step may still take."""

    left: int
    each: int  # of one prompt
    pause: int = 0  # beyond these, for new prompts that are computed whole
    has_pause: bool = False  # the pause was used
    is_by_text: bool = False  # a prompt is computed whole, however long it is
    work_of_token: float | None = None  # patches of pictures x layers that take as long as a token, once that is known

    def __bool__(self) -> bool:
        return self.left > 0 or self.pause > 0

    @property
    def part(self) -> int:
        """The tokens for the next prompt."""
        return min(self.left, self.each)

    def first_part(self, num_tokens: int) -> int:
        """The tokens for a new prompt of this length."""
        return num_tokens if self.is_by_text or num_tokens <= self.part + self.pause else self.part

    def beside(self, encoder_work: int, num_tokens: int) -> int:
        """How many of a prompt's next tokens fit along with the encoding of its pictures, which counts against its
        share of the step. At least one, so that a new prompt gets a slot and lets others follow."""
        part = self.part
        if self.work_of_token is None or not encoder_work or not part:
            return num_tokens
        as_tokens = min(part - 1, math.ceil(encoder_work / self.work_of_token))
        self.left -= as_tokens
        return min(num_tokens, part - as_tokens)

    def spend(self, num_tokens: int) -> None:
        """Count tokens that the step computes."""
        usual = min(self.part, num_tokens)
        self.left -= usual
        self.pause -= num_tokens - usual
        self.has_pause |= num_tokens > usual


class ScheduledStep:
    __slots__ = (
        "number", "rows", "slots", "num_tokens", "new", "forks", "decided", "forced", "masked", "dropped",
        "claimed", "num_reserved", "rooms", "several", "drafted", "drafts", "num_masks", "is_paced", "has_pause",
        "num_decodes", "encodes", "media", "encoder_work", "layered", "layered_sequences", "layer_work", "spares",
        "disk", "_added", "_forked",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: list[Sequence] = []
        self.slots: list[int] = []
        self.num_tokens: list[int] = []
        self.new: list[NewSlot] = []
        self.forks: list[Fork] = []
        self.decided: list[ForcedTokens] = []  # tokens that a worker is given instead of sampling them
        self.forced: dict[Sequence, array[int]] = {}  # of these, the ones that arrive with this step's result
        self.masked: list[int] = []  # rows
        self.dropped: set[Sequence] = set()  # sequences whose results don't count because their masks came too late
        self.claimed: dict[int, int] = {}  # how many tokens a row samples, if it has claimed ones
        self.num_reserved = 0  # tokens that prompts must leave to drafts
        self.rooms: dict[int, int] = {}  # how many drafts a row may compute besides, if any
        self.several: set[int] = set()  # rows with room that have drawn several tokens, once the result is here
        self.drafted: set[int] = set()  # likewise that had drafts
        self.drafts: dict[int, array[int]] | None = None  # those of masked rows, once rank 0 has sent them
        # How many masks a masked row has, if its grammar failed at the next: tokens beyond these don't count.
        self.num_masks: dict[int, int] = {}
        self.is_paced = False  # prompts were held back for streamed answers
        self.has_pause = False  # and yet the step takes longer than they should wait
        self.num_decodes = 0  # rows before those of prompts
        self.encodes: list[Encode] = []
        self.media: list[MediaRows] = []
        self.encoder_work = 0  # work of its encodes, in patches x layers
        self.layered: list[ChunkLayers] = []
        self.layered_sequences: list[Sequence] = []
        self.layer_work = 0  # work of these layers, in tokens x layers
        self.spares: list[SpareStates] = []
        self.disk: DiskOrders | None = None
        self._added: dict[int, Additions] = {}  # additions to a row's tables
        self._forked: list[ForkedTables] = []

    def add_decodes(self, sequences: list[Sequence], additions: dict[Sequence, Additions]) -> None:
        """Add one token for each sequence, and blocks for some."""
        if additions:
            self._added.update((row, additions[each]) for row, each in enumerate(sequences) if each in additions)
        self.rows += sequences
        self.slots += [sequence.slot for sequence in sequences]
        self.num_tokens += [1] * len(sequences)

    def add(self, sequence: Sequence, num_tokens: int, additions: Additions) -> None:
        """Add a chunk of a sequence, and the additions to its tables: their whole content if it enters its slot."""
        if additions:
            self._added[len(self.rows)] = additions
        self.rows.append(sequence)
        self.slots.append(sequence.slot)
        self.num_tokens.append(num_tokens)

    def add_layers(self, sequence: Sequence, layers: ChunkLayers, work: int) -> None:
        self.layered.append(layers)
        self.layered_sequences.append(sequence)
        self.layer_work += work

    @property
    def num_prompt_tokens(self) -> int:
        return sum(self.num_tokens[self.num_decodes :])

    def fork(self, parent: Sequence, child: Sequence, forked: ForkedTables) -> None:
        self.forks.append(Fork(parent.slot, child.slot, child.sample, list(map(column, forked.block_ids))))
        self._forked.append(forked)

    def decide(self, sequence: Sequence) -> None:
        """Send the workers its newest token, which the engine has chosen."""
        self.decided.append(ForcedTokens(sequence.slot, column(sequence.output[-1:])))

    def force(self, row: int, token_ids: "array[int]") -> None:
        """Let a row also compute these tokens before it samples."""
        self.forced[self.rows[row]] = token_ids
        self.decided.append(ForcedTokens(self.slots[row], token_ids.tobytes()))
        self.num_tokens[row] += len(token_ids)

    def add_to(self, row: int, additions: Additions) -> None:
        """Add to the tables of a row that the step has already."""
        if additions:
            self._added[row] = together(self._added.get(row, ()), additions)

    def drafts_of(self, row: int) -> "array[int]":
        """The tokens at whose places the row draws before it samples."""
        if (count := self.claimed.get(row)) is not None:
            return values(self.rows[row].packed_claims())[: max(0, count - 1)]
        return (self.drafts or {}).get(row, array("i"))

    @property
    def awaits_drafts(self) -> bool:
        """Whether masks depend on drafts that rank 0 has not sent yet."""
        return self.drafts is None and any(row in self.rooms for row in self.masked)

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.encodes or self.layered)

    def plan(self, freed: list[int], moves: list[Moves], dropped_entries: list[int]) -> StepPlan:
        """The step's plan for the workers; the moves are those of each group."""
        return StepPlan(
            step=self.number,
            slots=column(self.slots),
            num_tokens=column(self.num_tokens),
            groups=[self._changes(group, of_group) for group, of_group in enumerate(moves)],
            freed=column(freed),
            new=self.new,
            forced=self.decided,
            forks=self.forks,
            rooms=self._packed_rooms() if self.rooms else b"",
            masked=column(self.masked),
            dropped_entries=column(dropped_entries),
            encodes=self.encodes,
            media=self.media,
            layered=self.layered,
            spares=self.spares,
            disk=self.disk,
        )

    def _packed_rooms(self) -> bytes:
        rooms = array("i", bytes(_INT * len(self.rows)))
        for row, room in self.rooms.items():
            rooms[row] = room
        return rooms.tobytes()

    def _changes(self, group: int, moves: Moves) -> GroupChanges:
        if moves is NO_MOVES and not self._added and not self._forked:
            return GroupChanges(b"", bytes(_INT * (len(self.rows) + 1)))
        block_ids: list[int] = []
        starts: list[int] = []
        offsets: list[int] = []
        # Rows up to and including one that gets blocks begin where the previous blocks end.
        for row, additions in sorted(self._added.items()):
            appended = additions[group]
            offsets.extend(repeat(len(block_ids), row + 1 - len(offsets)))
            block_ids += appended.block_ids
            starts += appended.starts
        offsets.extend(repeat(len(block_ids), len(self.rows) + 1 - len(offsets)))
        return GroupChanges(
            block_ids=column(block_ids),
            block_offsets=column(offsets),
            starts=column(starts),
            copies=column(each for forked in self._forked for each in forked.copies[group]),
            saves=column(moves.saves),
            loads=column(moves.loads),
        )


def changes_of_row(additions: Additions, num_groups: int) -> list[GroupChanges]:
    """The changes of all groups for a single row with these additions to its tables."""
    if not additions:
        return [GroupChanges(b"", column([0, 0]))] * num_groups
    return [
        GroupChanges(column(each.block_ids), column([0, len(each.block_ids)]), column(each.starts))
        for each in additions
    ]


def new_slot(sequence: Sequence, rotation_start: int) -> NewSlot:
    prompt = sequence.request.prompt
    return NewSlot(
        slot=sequence.slot,
        token_ids=sequence.packed_tokens(0, sequence.num_known) + sequence.packed_claims(),
        num_prompt=sequence.num_prompt,
        num_computed=sequence.num_computed,
        params=sequence.params,
        seed=prompt.seed,
        sample=sequence.sample,
        num_claimed=sequence.num_claimed,
        adapter=sequence.request.adapter,
        rotation_start=rotation_start,
        num_candidates=sequence.decoding.num_candidates(sequence),
        positions=prompt.positions,
        store=sequence.request.store,
        expected=prompt.expected[sequence.sample] if sequence.sample < len(prompt.expected) else b"",
        pooled=prompt.pooled,
    )
