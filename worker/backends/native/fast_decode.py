"""Fast path on native kernels for decode steps in which each row feeds its last token and samples one.

Native calls read the plan's columns, fill the recorded step, and write the sampled tokens into the histories. Little is
left to Python, whose caches are cold after each pass over the weights. The answers equal those of `Runner`, bit for
bit. Any other plan is refused before anything has changed.
"""

from collections.abc import Callable

import numpy

from ....kernels.cpu.decode import Decode
from ....kernels.cpu.library import struct_of
from ....kernels.cpu.structs import DrawColumns, GroupTables, Slots
from ....protocol.messages import FailedRow, StepPlan, StepResult
from ....protocol.processes.faults import is_planted, point
from ....protocol.processes.trace import Trace
from ....protocol.wire import column, values
from ...kv.model_memory import ModelMemory
from ...ranks.parallel import Parallel
from ...sampler import FAULTS
from ...steps.block_tables import BlockTables
from ...steps.slots import SlotTable
from ...steps.state_tables import StateTables
from .decoder import Record, RecordedDecoder

_ONE = column([1])
_NOT_FINITE = 1  # of FAULTS


class RecordedFastDecode:
    def __init__(
        self, recorded: RecordedDecoder, memory: ModelMemory, table: SlotTable, ranks: Parallel, trace: Trace
    ) -> None:
        """Record for as many rows as the table has slots and prepare the calls, so that no request waits for this."""
        self.recorded = recorded
        self.memory = memory
        self.table = table
        self.ranks = ranks
        self._may_break = is_planted("worker.logits")
        self._forward = trace.timed(
            "forward", self._computed, step=lambda plan: plan.step, rows=_num_rows, tokens=_num_rows
        )
        self._sample = trace.timed("sample", self._sampled, step=lambda plan: plan.step)
        self._records: tuple[Record, Record] | None = None
        self._decode: Decode
        recorded.record(memory, len(table.is_taken))
        self._is_prepared()

    def launch(self, plan: StepPlan) -> Callable[[], StepResult] | None:
        """Compute the step and return a function for its result; None, changing nothing, if the plan is refused."""
        if any(isinstance(group, StateTables) and group.awaiting for group in self.table.groups):
            return None
        if not plan.has_rows_only or len(plan.groups) != len(self.table.groups) or not self._is_prepared():
            return None
        if not self._decode.begin(plan.slots, plan.num_tokens, plan.groups, self.recorded.num_rotations):
            return None
        self._forward(plan)
        broken, sampled = self._sample(plan)
        result = StepResult(plan.step, _ONE * _num_rows(plan), sampled, 0.0)
        return lambda: _without(broken, result) if broken else result

    def _computed(self, plan: StepPlan) -> None:
        layers, _ = self._records  # type: ignore[misc]
        layers.program.replay()

    def _sampled(self, plan: StepPlan) -> tuple[list[int], bytes]:
        """The rows whose logits are broken, and the tokens of all."""
        _, head = self._records  # type: ignore[misc]
        head.program.replay()
        return self._choose(head), self._decode.keep()

    def _is_prepared(self) -> bool:
        """Whether there are records; prepares the calls for new ones."""
        records = self.recorded.records(self.memory)
        if records is None:
            return False
        if records != self._records:
            layers, head = records
            logits = head.output.rows(min(layers.program.capacity, head.program.capacity))
            library, tables = self.recorded.ops.library, [_tables(group) for group in self.table.groups]
            slots, columns = _slots(self.table), _columns(self.table)
            self._decode = Decode(library, self.recorded.steps, tables, slots, columns, logits)
            self._records = records
        return True

    def _choose(self, head: Record) -> list[int]:
        """Sample and return the rows with broken logits. Afterwards all ranks have rank 0's tokens."""
        broken: list[int] = []
        if self.ranks.rank == 0:
            if self._may_break and point("worker.logits") == "nan":
                head.output.rows(1)[0] = numpy.nan
            broken = self._decode.choose()
        self.ranks.broadcast(self._decode.token_ids)
        return broken


def _num_rows(plan: StepPlan) -> int:
    return len(plan.slots) // len(_ONE)


def _without(broken: list[int], result: StepResult) -> StepResult:
    """Remove the broken rows' tokens from the result."""
    counts, tokens = (numpy.array(values(each)) for each in (result.num_sampled, result.sampled))
    counts[broken] = 0
    result.num_sampled, result.sampled = counts.tobytes(), tokens[counts == 1].tobytes()
    fault = FAULTS[_NOT_FINITE]
    result.failed = [FailedRow(row, fault.message, fault.error_code) for row in broken]
    return result


def _slots(table: SlotTable) -> Slots:
    return struct_of(
        Slots,
        num_slots=len(table.is_taken),
        max_model_len=table.histories.shape[1],
        block_size=table.block_size,
        is_taken=table.is_taken,
        is_plain=table.is_plain,
        num_tokens=table.num_tokens,
        num_computed=table.num_computed,
        rotation_starts=table.rotation_starts,
        histories=table.histories,
    )


def _tables(group: BlockTables | StateTables) -> GroupTables:
    if isinstance(group, StateTables):
        return struct_of(GroupTables, num_blocks=group.num_states, reads=group.reads, writes=group.writes)
    return struct_of(
        GroupTables,
        num_blocks=group.num_blocks,
        max_blocks=group.tables.shape[1],
        num_table=group.num_table,
        tables=group.tables,
    )


def _columns(table: SlotTable) -> DrawColumns:
    return struct_of(DrawColumns, **table.parameters.draw_columns())
