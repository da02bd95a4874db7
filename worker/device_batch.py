"""A step as kernels on a GPU want it: its counts in one small tensor, of which one kernel makes all other inputs.

Nothing here waits for the device. Knows nothing of plans, parameters or models.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy
import torch
from torch import Tensor

from ..kernels import Adapted
from ..kernels.paged import DeviceRows, Rotation
from ..kernels.reference.step_inputs import step_inputs
from .device import on_device
from .kv_cache import DeviceKVCache
from .slots import SlotTable, StepRows

_NO_SLOT = -1


class StepColumns(NamedTuple):
    """Rows of a step, and behind them rows that are not there."""

    slots: Tensor  # int32 [R]
    starts: Tensor  # int32 [R]: position of the first token to compute
    query_starts: Tensor  # int32 [R + 1]: the tokens of row r are query_starts[r]:query_starts[r + 1]

    @classmethod
    def shaped(cls, packed: Tensor, num_rows: int) -> Self:
        """The columns in what `packed` made."""
        return cls(*packed.split((num_rows, num_rows, num_rows + 1)))


def packed(rows: StepRows, num_rows: int) -> Tensor:
    """A step's columns for `num_rows`, one behind another; pinned where there is a GPU, so that nobody waits."""
    count, spare = len(rows), num_rows - len(rows)
    ends = numpy.cumsum(rows.num_tokens)
    columns = numpy.zeros(3 * num_rows + 1, numpy.int32)
    columns[:count], columns[count:num_rows] = rows.slots, _NO_SLOT
    columns[num_rows : num_rows + count] = rows.starts
    columns[2 * num_rows + 1 : 2 * num_rows + 1 + count] = ends
    columns[len(columns) - spare :] = ends[-1]
    held = torch.from_numpy(columns)
    return held.pin_memory() if torch.cuda.is_available() else held


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a forward pass reads."""

    token_ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    rows: DeviceRows

    @classmethod
    def made(cls, columns: StepColumns, table: SlotTable, num_tokens: int, max_queries: int, max_context: int) -> Self:
        found = step_inputs(
            columns.slots,
            columns.starts,
            columns.query_starts,
            table.histories,
            table.tables,
            table.block_size,
            num_tokens,
            -(-max_context // table.block_size),
        )
        rows = DeviceRows(
            columns.query_starts, found.context_lengths, found.block_tables, found.kv_slots, max_queries, max_context
        )
        return cls(found.token_ids, found.positions, rows)


class DeviceBatch:
    """One step of R rows and T tokens; has what a `Batch` has, made when it is first asked for."""

    rotation: Rotation
    token_ids: Tensor
    rows: DeviceRows

    def __init__(self, step_rows: StepRows, table: SlotTable, kv: DeviceKVCache) -> None:
        self.step_rows = step_rows
        self.table = table
        self.kv = kv
        self.query_starts = [0, *numpy.cumsum(step_rows.num_tokens).tolist()]
        self.context_lengths: list[int] = step_rows.ends.tolist()
        self.adapted = Adapted.of(table.adapters[step_rows.slots], step_rows.num_tokens, table.device)

    @property
    def num_tokens(self) -> int:
        return self.query_starts[-1]

    @property
    def only_decodes(self) -> bool:
        """Every row computes one token of its answer and is asked for the next, and none has an adapter."""
        rows = self.step_rows
        is_answering = rows.wants_logits & (rows.starts >= self.table.num_prompt[rows.slots])
        return self.num_tokens == len(rows) and bool(is_answering.all()) and self.adapted is None

    @cached_property
    def logit_rows(self) -> Tensor:
        """[S] int64: the tokens whose hidden states go to the head."""
        ends = numpy.array(self.query_starts[1:], numpy.int64)
        return on_device(ends[self.step_rows.wants_logits] - 1, self.table.device)

    def inputs(self) -> Inputs:
        count = len(self.step_rows)
        columns = packed(self.step_rows, count).to(self.table.device, non_blocking=True)
        most = int(self.step_rows.num_tokens.max())
        longest = int(self.step_rows.ends.max())
        return Inputs.made(StepColumns.shaped(columns, count), self.table, self.num_tokens, most, longest)

    def take(self, inputs: Inputs, rotation: Rotation) -> None:
        """What layers will read."""
        self.token_ids, self.rows, self.rotation = inputs.token_ids, inputs.rows, rotation
