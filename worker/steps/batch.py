"""The inputs of a forward pass, gathered once a step for all its rows.

Counts come from the host and stay there, so that no operation has to ask a device for a shape; tokens and block ids are
gathered on the device from the slot table.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast

import numpy

from ...kernels import LoraMapping, TokenRotation
from ...kernels.arrays import Array, DeviceArray
from ...kernels.operands import PlacedRows
from ...kernels.operations import LayerMemory, LayerRows, StepField
from ...kernels.states import Segments
from ...records import dataclass
from ..kv.model_memory import ModelMemory
from .block_tables import BlockRows, BlockTables
from .drafts import DrawnPlaces
from .slots import SlotTable
from .step_rows import Ints, StepRows


class LayerStep(NamedTuple):
    """A layer's inputs in a step besides the stream."""

    kv: LayerMemory
    rows: LayerRows
    rotation: StepField | None  # cosines and sines of the layer's own rope; None: it doesn't rotate


class LayerInputs(Protocol):
    """The layers' inputs in a step: tensors, or their stand-ins if a step is recorded or captured."""

    @property
    def token_ids(self) -> StepField: ...

    @property
    def adapted(self) -> StepField | None: ...

    @property
    def token_kinds(self) -> StepField | None:
        """Kinds of tokens, for models with separate experts for text and media."""

    placed: StepField | None  # which tokens get rows of media

    token_inputs: StepField  # set by a model whose layers have their own token embeddings

    def of_layer(self, layer: int) -> LayerStep: ...


@dataclass
class Batch:
    """One step of R rows and T tokens, S of which need logits."""

    token_ids: DeviceArray  # [T] int64, flat over the rows
    positions: DeviceArray  # [T] int64
    query_starts: list[int]  # R+1: the tokens of row r are query_starts[r]:query_starts[r + 1]
    context_lengths: list[int]  # R: tokens that the row's last query sees, including itself
    groups: list[BlockRows | Segments]  # the rows' and tokens' slots in the memory of each group
    logit_rows: DeviceArray  # [S] int64: the tokens after which one is drawn
    memory: ModelMemory
    # The tokens' rows in the rotary tables, or in that of learned positions, [T] int64, or [3, T] for time, height and
    # width; None: their positions.
    shifted_rotations: Ints | None = None  # on the host
    shifted_end: int = 0  # above all of these
    adapted: LoraMapping | None = None  # which tokens have a LoRA adapter, if any
    placed: PlacedRows | None = None  # which tokens get rows of media, if any
    seen_ends: Array | None = None  # [T] int64, on the host: one past the last token that each sees; None: itself
    seen_ends_by_group: Sequence[Array] = ()  # the same of each group of layers, if tokens see those after them
    token_kinds: DeviceArray | None = None  # [T] int32: 1 for media tokens, if they have separate experts
    rows: Sequence[LayerRows] = ()  # by group, as operations on tensors see the step; set by their decoder
    # By layer, the rotation of queries and keys, set likewise; None if it doesn't rotate.
    rotations_by_layer: Sequence[TokenRotation | None] = ()
    token_inputs: StepField | None = None  # [T, layers × width] if layers have their own token embeddings

    @property
    def num_tokens(self) -> int:
        return self.query_starts[-1]

    @property
    def learned_rows(self) -> DeviceArray:
        """[T] int64: the tokens' rows in a table of learned positions."""
        return self.positions if self.shifted_rotations is None else self.shifted_rotations

    def seen_ends_of(self, group: int) -> Array | None:
        return self.seen_ends_by_group[group] if self.seen_ends_by_group else self.seen_ends

    @property
    def rotations_end(self) -> int:
        """One past the last row of the rotary tables that the step reads."""
        return self.shifted_end or max(self.context_lengths)

    def of_layer(self, layer: int) -> LayerStep:
        rows = self.rows[self.memory.group_of(layer)]
        return LayerStep(self.memory.of_layer(layer), rows, self.rotations_by_layer[layer])


MakeBatch = Callable[[SlotTable, StepRows, ModelMemory], Batch]


def step_batch(table: SlotTable, rows: StepRows, memory: ModelMemory) -> Batch:
    query_starts = numpy.concatenate(([0], numpy.cumsum(rows.num_tokens)))
    row_of_token = numpy.repeat(numpy.arange(len(rows)), rows.num_tokens)
    positions = numpy.arange(query_starts[-1]) - query_starts[row_of_token] + rows.starts[row_of_token]

    slots, device_positions = map(table.device.put, (rows.slots[row_of_token], positions))
    rotations = shifted_rotations(table, rows, row_of_token, positions)
    adapters = table.adapters[rows.slots]
    token_ids = table.device.cast(table.histories[slots, device_positions], numpy.int64)
    return Batch(
        token_ids=token_ids,
        positions=device_positions,
        query_starts=query_starts.tolist(),
        context_lengths=rows.ends.tolist(),
        groups=[
            segments or cast(BlockTables, group).step_rows(rows, row_of_token, positions)
            for group, segments in zip(table.groups, rows.segments, strict=True)
        ],
        logit_rows=table.device.put(DrawnPlaces.of(rows).tokens),
        memory=memory,
        shifted_rotations=rotations,
        shifted_end=0 if rotations is None else int(rotations.max()) + 1,
        adapted=LoraMapping.of(adapters, rows.num_tokens, table.device.put) if (adapters >= 0).any() else None,
        token_kinds=token_kinds(table, token_ids, positions < table.num_prompt[rows.slots][row_of_token]),
        seen_ends_by_group=[_ends(each, rows.ends[row_of_token], positions) for each in table.seen_ahead],
    )


def _ends(num_seen_ahead: int | None, ends: Ints, positions: Ints) -> Ints:
    """[T] int64: one past the last token that each sees in a text that ends there."""
    if num_seen_ahead is None:
        return ends
    seen: Ints = numpy.minimum(ends, positions + 1 + num_seen_ahead)
    return seen


def token_kinds(table: SlotTable, token_ids: DeviceArray, is_prompt: numpy.ndarray) -> DeviceArray | None:
    """[T] int32; None if all are text. Generated tokens always count as text."""
    if table.media_tokens is None or not is_prompt.any():
        return None
    is_media = (token_ids[:, None] == table.media_tokens).any(1) & table.device.put(is_prompt)
    return table.device.cast(is_media, numpy.int32)


def _learned_shifts(table: SlotTable, rows: StepRows) -> Ints:
    """[T] int64: from the tokens' positions to their rows in the table of learned ones, where texts hold padding."""
    shifts = [
        table.learned_shifts[slot][start:end] if slot in table.learned_shifts else numpy.zeros(end - start, numpy.int64)
        for slot, start, end in zip(rows.slots.tolist(), rows.starts.tolist(), rows.ends.tolist(), strict=True)
    ]
    return numpy.concatenate(shifts)


def shifted_rotations(table: SlotTable, rows: StepRows, row_of_token: Ints, positions: Ints) -> Ints | None:
    """The tokens' rows in the rotary tables, [T], or [3, T] if some have three; None if all equal the positions."""
    starts = table.rotation_starts[rows.slots]
    in_prompts = [
        (row, of_prompt)
        for row, slot in enumerate(rows.slots.tolist() if table.prompt_rotations else [])
        if (of_prompt := table.prompt_rotations.get(slot)) is not None and rows.starts[row] < of_prompt.shape[1]
    ]
    if not in_prompts:
        own = positions
        if table.learned_shifts:
            positions = positions + _learned_shifts(table, rows)
        is_second = own >= table.second_texts[rows.slots][row_of_token]
        if is_second.any():
            of_pairs: Ints = positions + table.rows_of_type * is_second
            return of_pairs
        if table.learned_shifts:
            return positions
        return positions + starts[row_of_token] if starts.any() else None
    by_axis = numpy.tile(positions + starts[row_of_token], (3, 1))
    firsts = numpy.cumsum(rows.num_tokens) - rows.num_tokens
    for row, of_prompt in in_prompts:
        own = of_prompt[:, rows.starts[row] : rows.ends[row]]
        by_axis[:, firsts[row] : firsts[row] + own.shape[1]] = own
    return by_axis
