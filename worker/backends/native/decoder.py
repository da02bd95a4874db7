"""A decoder on native kernels: its layers run once to record their kernel calls, and every step replays these.

A record holds the addresses of the model's memory and of buffers for a number of tokens. One is made when a worker
starts; other memory or a larger step needs a new one, which takes milliseconds. Each group of layers has its own step,
which locates the same tokens in the group's memory.
"""

from collections.abc import Sequence
from ctypes import addressof
from typing import Any, cast

import numpy

from ....kernels.arrays import Array, DeviceArray, address
from ....kernels.cpu.library import pointer_to
from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.program import Buffer, Program
from ....kernels.cpu.structs import RotaryTable, Step
from ....kernels.operations import StepField
from ....kernels.states import Segments
from ....records import dataclass
from ...kv.model_memory import ModelMemory
from ...layers.decoder import Decoder
from ...steps.batch import Batch, LayerStep
from ...steps.block_tables import BlockRows
from ...weights.weights import Rows

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

    def of_layer(self, layer: int) -> LayerStep:
        step = self.steps[self.memory.group_of(layer)]
        return LayerStep(self.memory.of_layer(layer), step, self.rotations[layer])


@dataclass
class Record:
    """A recorded part of a model's step for up to `capacity` rows, and the address of its output."""

    program: Program
    output: Buffer


class RecordedDecoder:
    """Replaces the decoder whose calls it records."""

    def __init__(self, decoder: Decoder, ops: NativeOperations) -> None:
        self.decoder = decoder
        self.ops = ops
        self.steps = [Step()]  # by group of layers; operations outside layers use the first
        self._tables = [RotaryTable() for _ in decoder.ropes.tables]
        self._memory: ModelMemory | None = None
        self._layers: Record | None = None
        self._head: Record | None = None
        self._references: list[Any] = []  # keeps alive what the steps point to

    def record(self, memory: ModelMemory, num_rows: int) -> None:
        """Record steps of up to so many rows in advance."""
        self._layers = self._recorded_layers(memory, _capacity(num_rows))
        self._head = self._recorded_head(_capacity(num_rows))

    def records(self, memory: ModelMemory) -> tuple[Record, Record] | None:
        """The records of layers and head for this memory, if any, for a caller that fills the steps itself."""
        if self._memory is not memory or self._layers is None or self._head is None:
            return None
        return self._layers, self._head

    @property
    def num_rotations(self) -> int:
        """The number of rows in the ropes' tables."""
        return self.decoder.ropes.num_rows

    def forward(self, batch: Batch) -> DeviceArray:
        """Return the stream after the last layer, [T, hidden], valid until the next step."""
        tokens = len(batch.positions)
        if self._layers is None or self._memory is not batch.memory or tokens > self._layers.program.capacity:
            self._layers = self._recorded_layers(batch.memory, _capacity(tokens))
            self._head = None  # its input is the layers' output
        self._point_to(batch)
        self._layers.program.replay()
        self._point_to_tables()  # a fast step expects them
        return self._layers.output.rows(tokens)

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray:
        """Return float32 logits, [S, vocabulary], of rows of the last step's `hidden`, valid until the next call."""
        count = len(rows)
        if self._head is None or count > self._head.program.capacity:
            self._head = self._recorded_head(_capacity(count))
        self.steps[0].num_logits, self.steps[0].logit_rows = count, address(rows)
        self._head.program.replay()
        return self._head.output.rows(count)

    def _recorded_layers(self, memory: ModelMemory, capacity: int) -> Record:
        if self._memory is not memory:
            self._memory, self._head = memory, None
            self.steps[1:] = [Step() for _ in memory.groups[1:]]
        program = Program(self.ops.library, capacity, self.steps[0].address_of("num_tokens"))
        rotations = self.decoder.ropes.by_layer([addressof(table) for table in self._tables])
        batch = RecordedBatch(self.steps, memory, rotations)
        with self.ops.recording(program, self.steps[0]):
            return Record(program, cast(Buffer, self.decoder.stream(batch)))

    def _recorded_head(self, capacity: int) -> Record:
        program = Program(self.ops.library, capacity, self.steps[0].address_of("num_logits"))
        hidden = Rows(self._layers.output)  # type: ignore[union-attr]
        with self.ops.recording(program, self.steps[0]):
            logits = self.decoder.logits(hidden, self.steps[0].address_of("logit_rows"))
            return Record(program, cast(Buffer, logits))

    def _point_to_tables(self) -> None:
        for table, rope in zip(self._tables, self.decoder.ropes.tables, strict=True):
            table.cosines, table.sines = address(rope.cos), address(rope.sin)
            table.query_scales = pointer_to(rope.query_scales)

    def _point_to_rotations(self, batch: Batch) -> list[DeviceArray]:
        """Point the steps to rows of the rotary tables, or to cosines and sines gathered by axis."""
        rotations = batch.shifted_rotations
        if rotations is None or rotations.ndim == 1:
            return [batch.positions if rotations is None else rotations]
        gathered = [rope.by_axis(rotations) for rope in self.decoder.ropes.tables]
        for table, (cosines, sines) in zip(self._tables, gathered, strict=True):
            table.cosines, table.sines, table.query_scales = address(cosines), address(sines), None
        return [numpy.arange(rotations.shape[1]), *(each for pair in gathered for each in pair)]

    def _point_to(self, batch: Batch) -> None:
        self.decoder.ropes.grow_to(batch.rotations_end)
        self._point_to_tables()
        rotations = self._point_to_rotations(batch)
        starts, lengths = (numpy.array(counts, numpy.int32) for counts in (batch.query_starts, batch.context_lengths))
        self._references = [batch, starts, lengths, rotations]
        for step, group in zip(self.steps, batch.groups, strict=True):
            step.num_tokens, step.num_rows = len(batch.positions), len(lengths)
            step.token_ids, step.positions = address(batch.token_ids), address(batch.positions)
            step.seen_ends = pointer_to(batch.seen_ends)
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


def _capacity(rows: int) -> int:
    return max(_FEWEST, 1 << (rows - 1).bit_length())
