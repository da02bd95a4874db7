"""The inputs of a step on a GPU: the host sends counts in one small tensor, and one kernel makes the other inputs.

Nothing here waits for the device.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy
import torch
from torch import Tensor

from ....kernels import LoraMapping
from ....kernels.operands import PlacedRows
from ....kernels.paged import DeviceRows, PromptRows, Rotation
from ....kernels.sampling import NO_ROW
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


class StepColumns(NamedTuple):
    """The rows of a step, followed by empty rows."""

    slots: Tensor  # int32 [R]
    starts: Tensor  # int32 [R]: position of the first token to compute
    ends: Tensor  # int32 [R]: position after the last one
    query_starts: Tensor  # int32 [R + 1]: the tokens of row r are query_starts[r]:query_starts[r + 1]

    @classmethod
    def shaped(cls, packed: Tensor, num_rows: int) -> Self:
        """Split the result of `packed` into columns."""
        slots, starts, ends = packed[: 3 * _stride(num_rows)].view(3, -1)[:, :num_rows]
        return cls(slots, starts, ends, packed[3 * _stride(num_rows) :][: num_rows + 1])


class Places(NamedTuple):
    """The places at which a captured step draws tokens, one for each of its tokens, followed by empty ones."""

    slots: Tensor  # int32 [T]
    positions: Tensor  # int32 [T]: of the tokens to draw

    @classmethod
    def shaped(cls, packed: Tensor, num_rows: int, tokens: int) -> Self:
        """The places in the result of `packed`."""
        if tokens == 1:
            columns = StepColumns.shaped(packed, num_rows)
            return cls(columns.slots, columns.ends)
        return cls(*packed[_places_start(num_rows) :].view(2, -1)[:, : num_rows * tokens])


def packed(rows: StepRows, num_rows: int, tokens: int = 1) -> Tensor:
    """Pack a step's columns for `num_rows`, and its places if rows have up to so many tokens, into one array; pinned
    for a GPU, so that the copy doesn't block."""
    count, stride = len(rows), _stride(num_rows)
    of_places = 0 if tokens == 1 else 2 * _stride(num_rows * tokens)
    columns = numpy.zeros(_places_start(num_rows) + of_places, numpy.int32)
    by_row, query_starts = columns[: 3 * stride].reshape(3, stride), columns[3 * stride :][: num_rows + 1]
    by_row[:, :count] = rows.slots, rows.starts, rows.ends
    by_row[0, count:] = NO_ROW
    query_starts[1 : count + 1] = numpy.cumsum(rows.num_tokens)
    query_starts[count + 1 :] = query_starts[count]
    if of_places:
        drawn = DrawnPlaces.of(rows)
        by_place = columns[-of_places:].reshape(2, -1)
        by_place[:, : len(drawn)] = drawn.slots, drawn.positions
        by_place[0, len(drawn) :] = NO_ROW
    return pinned(torch.from_numpy(columns))


def _places_start(num_rows: int) -> int:
    return 3 * _stride(num_rows) + _stride(num_rows + 1)


def _stride(num_rows: int) -> int:
    return -(-num_rows // _ALIGNED) * _ALIGNED


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a forward pass."""

    token_ids: Tensor  # [T] int64
    rotations: Tensor  # [T] int64: the tokens' rows in the rotary tables
    rows: DeviceRows
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
    return Inputs(found.token_ids, _rotations(found.positions, columns, table), rows, adapted)


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
        columns = StepColumns.shaped(packed(self.step_rows, count).to(device, non_blocking=True), count)
        most, longest = int(self.step_rows.num_tokens.max()), int(self.step_rows.ends.max())
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
        self.rotations_by_layer = rotations_by_layer
        if self.table.media_tokens is not None:
            row_of_token, positions = self._rows_and_positions
            is_prompt = positions < self.table.num_prompt[self.step_rows.slots][row_of_token]
            self.token_kinds = token_kinds(self.table, inputs.token_ids, is_prompt)

    def of_layer(self, layer: int) -> LayerStep:
        found = self.step_rows.segments
        segments = found[self.memory.group_of(layer)] if found else None
        rows = self.rows if segments is None else segments
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
