"""The inputs of a step on a GPU: the host sends counts in one small tensor, and one kernel makes the other inputs.

Nothing here waits for the device.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy
import torch
from torch import Tensor

from ....kernels import LoraMapping
from ....kernels.operands import PlacedRows
from ....kernels.paged import DeviceRows, PromptRows, Rotation
from ....kernels.sampling import NO_ROW
from ....kernels.states import NO_STATE, Segments
from ....kernels.torch.arrays import tensor_of
from ....kernels.triton.products.lora import DeviceLoraMapping
from ...kv.model_memory import ModelMemory
from ...steps.batch import LayerStep, shifted_rotations, token_kinds
from ...steps.block_tables import BlockTables
from ...steps.drafts import DrawnPlaces
from ...steps.slots import SlotTable
from ...steps.step_rows import Ints, StepRows
from ..torch.device import pinned, torch_device
from .graph_keys import MOST_PLACES

if TYPE_CHECKING:  # its kernels import triton
    from ....kernels.triton.operations import TritonOperations

_ALIGNED = 4  # int32 elements in 16 bytes, the alignment that kernels prefer


class Places(NamedTuple):
    """The places at which a captured step draws tokens, one for each of its tokens, followed by empty ones."""

    slots: Tensor  # int32 [T]
    positions: Tensor  # int32 [T]: of the tokens to draw


class StepColumns(NamedTuple):
    """The rows of a step, followed by empty rows."""

    slots: Tensor  # int32 [R]
    starts: Tensor  # int32 [R]: position of the first token to compute
    ends: Tensor  # int32 [R]: position after the last one
    query_starts: Tensor  # int32 [R + 1]: the tokens of row r are query_starts[r]:query_starts[r + 1]
    places: Places
    segments: tuple[Segments | None, ...]  # for each group of layers with states, as in `StepRows`


class Room(NamedTuple):
    """For the columns of a step, which lie one behind another in one array: a copy brings them all."""

    rows: int
    places: int = 1  # of a row, at most
    segments: int = 0  # of each group with states
    longest: int = 1  # tokens of a segment, at most

    def sizes(self, num_groups: int) -> list[int]:
        of_places = [self.rows * self.places] * 2 if self.places > 1 else []
        of_segments = [self.segments + 1, self.segments, self.segments, self.rows + 1]
        return [*[self.rows] * 3, self.rows + 1, *of_places, *of_segments * num_groups]

    def packed(self, rows: StepRows) -> Tensor:
        """Pinned for a GPU, so that the copy doesn't block."""
        query_starts = numpy.concatenate(([0], numpy.cumsum(rows.num_tokens)))
        columns = [(rows.slots, NO_ROW), (rows.starts, 0), (rows.ends, 0), (query_starts, query_starts[-1])]
        if self.places > 1:
            drawn = DrawnPlaces.of(rows)
            columns += [(drawn.slots, NO_ROW), (drawn.positions, 0)]
        groups = [each for each in rows.segments if each is not None]
        for each in groups:
            fills = (each.starts[-1], NO_STATE, 0, each.of_rows[-1])
            columns += zip(each.columns, fills, strict=True)
        strides = [_stride(size) for size in self.sizes(len(groups))]
        whole, at = numpy.empty(sum(strides), numpy.int32), 0
        for (column, fill), stride in zip(columns, strides, strict=True):
            whole[at : at + len(column)], whole[at + len(column) : at + stride] = column, fill
            at += stride
        return pinned(torch.from_numpy(whole))

    def columns(self, packed: Tensor, rows: StepRows) -> StepColumns:
        """Views into the result of `packed`, for steps whose groups are those of `rows`."""
        sizes = self.sizes(sum(each is not None for each in rows.segments))
        parts = zip(packed.split([_stride(size) for size in sizes]), sizes, strict=True)
        slots, starts, ends, query_starts, *others = (part[:size] for part, size in parts)
        places = Places(*others[:2]) if self.places > 1 else Places(slots, ends)
        columns = iter(others[2:] if self.places > 1 else others)
        segments = [each and Segments.of(islice(columns, 4), self.longest) for each in rows.segments]
        return StepColumns(slots, starts, ends, query_starts, places, tuple(segments))


def _stride(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a forward pass."""

    token_ids: Tensor  # [T] int64
    rotations: Tensor  # [T] int64: the tokens' rows in the rotary tables
    rows: DeviceRows
    segments: tuple[Segments | None, ...]
    adapted: DeviceLoraMapping | None = None  # which tokens have a LoRA adapter, if any may


def inputs_of(
    columns: StepColumns,
    table: SlotTable,
    ops: "TritonOperations",
    num_tokens: int,
    max_queries: int,
    max_context: int,
    adapted: DeviceLoraMapping | None,
    prompts: PromptRows | None = None,
    seen_ends: Tensor | None = None,
) -> Inputs:
    width = -(-max_context // table.block_size)
    counts = (columns.slots, columns.starts, columns.query_starts)
    tables = cast(BlockTables, table.groups[0]).tables  # for all layers with attention
    found = ops.step_inputs(*counts, table.histories, tables, table.block_size, num_tokens, width)
    rows = DeviceRows(
        columns.query_starts,
        found.context_lengths,
        found.block_tables,
        found.kv_slots,
        max_queries,
        max_context,
        prompts,
        seen_ends,
    )
    rotations = _rotations(found.positions, columns, table)
    return Inputs(found.token_ids, rotations, rows, columns.segments, adapted)


def _rotations(positions: Tensor, columns: StepColumns, table: SlotTable) -> Tensor:
    """The tokens' rows in the rotary table; padding tokens get any valid row."""
    if table.device_rotation_starts is None:
        return positions
    token = torch.arange(len(positions), dtype=torch.int32, device=positions.device)
    row = torch.searchsorted(columns.query_starts[1:].contiguous(), token, right=True).clamp(max=len(columns.slots) - 1)
    return positions + table.device_rotation_starts[columns.slots[row].clamp(min=0)]


class DeviceBatch:
    """One step of R rows and T tokens; has the fields of a `Batch` after `take`."""

    token_ids: Tensor
    rows: DeviceRows
    segments: tuple[Segments | None, ...]
    rotations_by_layer: list[Rotation | None]
    adapted: DeviceLoraMapping | None
    token_inputs: Any = None
    token_kinds: Tensor | None = None
    placed: PlacedRows | None = None
    seen_ends: Ints | None = None  # [T] int64, on the host, as in `Batch`

    def __init__(self, table: SlotTable, step_rows: StepRows, memory: ModelMemory) -> None:
        self.step_rows = step_rows
        self.table = table
        self.memory = memory
        self.query_starts = [0, *numpy.cumsum(step_rows.num_tokens).tolist()]
        self.context_lengths: list[int] = step_rows.ends.tolist()
        self.adapters = _pinned(LoraMapping.of(table.adapters[step_rows.slots], step_rows.num_tokens))

    @property
    def num_tokens(self) -> int:
        return self.query_starts[-1]

    @property
    def num_segments(self) -> int:
        """Of the group of layers with states that has most."""
        return max((len(each.reads) for each in self.step_rows.segments if each is not None), default=0)

    @cached_property
    def only_decodes(self) -> bool:
        """Whether every row computes one token of its answer and wants the next."""
        rows = self.step_rows
        is_answering = rows.wants_logits & (rows.starts >= self.table.num_prompt[rows.slots])
        return self.num_tokens == len(rows) and bool(is_answering.all())

    @cached_property
    def draws_everywhere(self) -> bool:
        """Whether every token is one of an answer, and a token is drawn after it."""
        rows = self.step_rows
        is_of_answer = rows.starts >= self.table.num_prompt[rows.slots]
        return bool((is_of_answer & (rows.num_drawn == rows.num_tokens)).all())

    @property
    def is_of_text(self) -> bool:
        """Whether a step with prompts has no inputs but tokens and positions."""
        has_pictures = self.placed is not None or self.seen_ends is not None or self.table.media_tokens is not None
        return not has_pictures and self.rotations_by_axis is None

    @cached_property
    def rotations_by_axis(self) -> Ints | None:
        """[3, T], on the host: the tokens' rows in the rotary tables for time, height and width, if some have three."""
        if not self.table.prompt_rotations:
            return None
        found = shifted_rotations(self.table, self.step_rows, *self._rows_and_positions)
        return found if found is not None and found.ndim == 2 else None

    @cached_property
    def _rows_and_positions(self) -> tuple[Ints, Ints]:
        """[T] each: the tokens' rows and positions."""
        rows = self.step_rows
        row_of_token = numpy.repeat(numpy.arange(len(rows)), rows.num_tokens)
        firsts = rows.starts - numpy.array(self.query_starts[:-1], numpy.int64)
        return row_of_token, numpy.arange(self.num_tokens) + firsts[row_of_token]

    @cached_property
    def rotations_end(self) -> int:
        """One past the last row of the rotary tables that the step reads."""
        return rotations_end(self.table, self.step_rows.slots, self.step_rows.ends)

    @cached_property
    def logit_rows(self) -> Tensor:
        """[S] int64: the tokens after which one is drawn."""
        table = self.table
        if self.draws_everywhere and self.num_tokens <= (most := max(len(table.is_taken), MOST_PLACES)):
            return _numbers(most, torch_device(table.device))[: self.num_tokens]
        return table.device.put(DrawnPlaces.of(self.step_rows).tokens)

    def inputs(self, ops: "TritonOperations") -> Inputs:
        count, device = len(self.step_rows), torch_device(self.table.device)
        most, longest = int(self.step_rows.num_tokens.max()), int(self.step_rows.ends.max())
        room = Room(count, 1, self.num_segments, most)
        columns = room.columns(room.packed(self.step_rows).to(device, non_blocking=True), self.step_rows)
        adapted = None
        if self.adapters is not None:
            parts = (self.adapters.tokens, self.adapters.blocks)
            adapted = DeviceLoraMapping(*(part.to(device, non_blocking=True) for part in parts))
        seen_ends = None if self.seen_ends is None else self.table.device.put(self.seen_ends)
        prompts = self._prompts()
        return inputs_of(columns, self.table, ops, self.num_tokens, most, longest, adapted, prompts, seen_ends)

    def _prompts(self) -> PromptRows:
        rows = self.step_rows
        prompts = numpy.flatnonzero(rows.num_tokens > 1)
        return PromptRows(int(prompts[0]) if len(prompts) else len(rows), len(prompts))

    def take(self, inputs: Inputs, rotations_by_layer: list[Rotation | None]) -> None:
        """Set the inputs that layers read."""
        self.token_ids, self.rows, self.adapted = inputs.token_ids, inputs.rows, inputs.adapted
        self.segments = inputs.segments
        self.rotations_by_layer = rotations_by_layer
        if self.table.media_tokens is not None:
            row_of_token, positions = self._rows_and_positions
            is_prompt = positions < self.table.num_prompt[self.step_rows.slots][row_of_token]
            self.token_kinds = token_kinds(self.table, inputs.token_ids, is_prompt)

    def of_layer(self, layer: int) -> LayerStep:
        rows = (self.segments and self.segments[self.memory.group_of(layer)]) or self.rows
        return LayerStep(self.memory.of_layer(layer), rows, self.rotations_by_layer[layer])


def rotations_end(table: SlotTable, slots: numpy.ndarray, ends: numpy.ndarray) -> int:
    """One past the last row of the rotary tables for these slots' tokens up to `ends`."""
    found = [table.prompt_rotations[slot] for slot in slots.tolist() if slot in table.prompt_rotations]
    return max(int((table.rotation_starts[slots] + ends).max()), *(int(each.max()) + 1 for each in found), 0)


@cache
def _numbers(count: int, device: torch.device) -> Tensor:
    """0, 1, 2 …, kept on the device between steps."""
    return torch.arange(count, device=device)


def _pinned(adapted: LoraMapping | None) -> DeviceLoraMapping | None:
    if adapted is None:
        return None
    return DeviceLoraMapping(*(pinned(tensor_of(part)) for part in (adapted.tokens, adapted.blocks)))
