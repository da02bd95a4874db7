"""The structures from which recorded layers read a step: one for each group of layers, and the tables of the ropes.

Each group's step locates the same tokens in the group's memory. A record holds the structures' addresses, so they stay
while what they point to changes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof
from typing import Any

import numpy

from ....kernels.arrays import Array, DeviceArray, address
from ....kernels.cpu.library import pointer_to
from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.program import Program
from ....kernels.cpu.structs import RotaryTable, Step
from ....kernels.operations import StepField
from ....kernels.states import Segments
from ....records import dataclass
from ...kv.model_memory import ModelMemory
from ...layers.rope import Ropes
from ...steps.batch import Batch, LayerStep
from ...steps.block_tables import BlockRows

_FEWEST = 16  # rows of the smallest record


@dataclass
class RecordedBatch:
    """Replaces the batch while layers are recorded: kernels read everything that changes from the steps."""

    steps: Sequence[Step]  # by group of layers
    memory: ModelMemory
    rotations: Sequence[int | None]  # by layer, the address of its rope's table
    adapted: None = None
    placed: None = None
    token_inputs: StepField | None = None

    @property
    def token_kinds(self) -> int:
        return self.steps[0].address_of("token_kinds")

    @property
    def token_ids(self) -> int:
        return self.steps[0].address_of("token_ids")

    @property
    def learned_rows(self) -> int:
        return self.steps[0].address_of("rotations")

    def of_layer(self, layer: int) -> LayerStep:
        step = self.steps[self.memory.group_of(layer)]
        return LayerStep(self.memory.of_layer(layer), step, self.rotations[layer])


class RecordedSteps:
    def __init__(self, ropes: Ropes) -> None:
        self.ropes = ropes
        self.steps = [Step()]  # by group of layers; operations outside layers use the first
        self.memory: ModelMemory | None = None  # of the record
        self._tables = [RotaryTable() for _ in ropes.tables]
        self._references: list[Any] = []  # keeps alive what the steps point to

    @contextmanager
    def recording(
        self, ops: NativeOperations, memory: ModelMemory, rows: int
    ) -> Iterator[tuple[Program, RecordedBatch]]:
        """Record the layers that are called meanwhile, for up to so many rows."""
        if self.memory is not memory:
            self.memory = memory
            self.steps[1:] = [Step() for _ in memory.groups[1:]]
        program = Program(ops.library, capacity(rows), self.steps[0].address_of("num_tokens"))
        rotations = self.ropes.by_layer([addressof(table) for table in self._tables])
        with ops.recording(program, self.steps[0]):
            yield program, RecordedBatch(self.steps, memory, rotations)

    def point_to_tables(self) -> None:
        for table, rope in zip(self._tables, self.ropes.tables, strict=True):
            table.cosines, table.sines = address(rope.cos), address(rope.sin)
            table.query_scales = pointer_to(rope.query_scales)

    def _point_to_rotations(self, batch: Batch) -> list[DeviceArray]:
        """Point the steps to rows of the rotary tables, or to cosines and sines gathered by axis."""
        rotations = batch.shifted_rotations
        if rotations is None or rotations.ndim == 1:
            return [batch.positions if rotations is None else rotations]
        gathered = [rope.by_axis(rotations) for rope in self.ropes.tables]
        for table, (cosines, sines) in zip(self._tables, gathered, strict=True):
            table.cosines, table.sines, table.query_scales = address(cosines), address(sines), None
        return [numpy.arange(rotations.shape[1]), *(each for pair in gathered for each in pair)]

    def point_to(self, batch: Batch) -> None:
        """Let the steps be those of this batch."""
        self.ropes.grow_to(batch.rotations_end)
        self.point_to_tables()
        rotations = self._point_to_rotations(batch)
        starts, lengths = (numpy.array(counts, numpy.int32) for counts in (batch.query_starts, batch.context_lengths))
        tables = [(rope.cos, rope.sin, rope.query_scales) for rope in self.ropes.tables]
        self._references = [batch, starts, lengths, rotations, tables]
        for number, (step, group) in enumerate(zip(self.steps, batch.groups, strict=True)):
            step.num_tokens, step.num_rows = len(batch.positions), len(lengths)
            step.token_ids, step.positions = address(batch.token_ids), address(batch.positions)
            step.seen_ends = pointer_to(batch.seen_ends_of(number))
            step.rotations = address(rotations[0])
            step.query_starts, step.context_lengths = address(starts), address(lengths)
            if isinstance(group, BlockRows):
                self._references += _point_to_blocks(step, group)
            else:
                _point_to_segments(step, group)
        step = self.steps[0]
        step.num_adapted = 0
        if (adapted := batch.adapted) is not None:
            step.num_adapted = len(adapted.blocks)
            step.adapted, step.adapted_tokens = address(adapted.blocks), address(adapted.tokens)
        step.token_kinds = pointer_to(batch.token_kinds)
        step.num_placed = 0
        if (placed := batch.placed) is not None:
            step.num_placed = len(placed.tokens)
            step.placed_tokens, step.placed_rows = address(placed.tokens), address(placed.rows)
            step.kept_rows, step.kept_width = address(placed.kept), placed.kept.shape[1]


def _point_to_blocks(step: Step, rows: BlockRows) -> list[Array]:
    """Point the step to its blocks; return arrays to keep alive."""
    tables = numpy.ascontiguousarray(rows.block_tables)
    step.table_width, step.block_tables, step.kv_slots = tables.shape[1], address(tables), address(rows.kv_slots)
    return [tables]


def _point_to_segments(step: Step, segments: Segments) -> None:
    step.num_segments = len(segments.reads)
    step.segment_starts, step.segments_of_rows = address(segments.starts), address(segments.of_rows)
    step.segment_reads, step.segment_writes = address(segments.reads), address(segments.writes)


def capacity(rows: int) -> int:
    """The size of a record for so many rows."""
    return max(_FEWEST, 1 << (rows - 1).bit_length())
