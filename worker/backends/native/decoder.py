"""A decoder on native kernels: its layers are called once to record their kernel calls, and every step replays these.

A record holds the addresses of the KV memory and of buffers for a number of tokens. One is made when a worker starts;
other memory or a larger step makes a new one, in milliseconds.
"""

from collections.abc import Sequence
from ctypes import addressof
from dataclasses import dataclass
from typing import Any, cast

import numpy
from torch import Tensor

from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.program import Buffer, Program, RotaryTable, Step
from ...kv.kv_cache import AnyKVCache, NativeKVCache
from ...models.decoder import Decoder
from ...steps.batch import Batch, LayerStep

_FEWEST = 16  # rows that a record is made for


@dataclass
class RecordedBatch:
    """Replaces the batch while layers are recorded: kernels find in the step what changes with it."""

    step: Step
    kv: NativeKVCache
    rotations: Sequence[int | None]  # of each layer the address of its rope's table
    adapted: None = None

    @property
    def token_ids(self) -> int:
        return self.step.address_of("token_ids")

    def of_layer(self, layer: int) -> LayerStep:
        return LayerStep(self.kv.of_layer(layer), self.step, self.rotations[layer])


@dataclass
class Record:
    """A part of a model's step for up to `capacity` rows, and where its output lies."""

    program: Program
    output: Buffer


class RecordedDecoder:
    """Replaces the decoder whose calls it records."""

    def __init__(self, decoder: Decoder, ops: NativeOperations) -> None:
        self.decoder = decoder
        self.ops = ops
        self.step = Step()
        self._tables = [RotaryTable() for _ in decoder.ropes.tables]
        self._kv: NativeKVCache | None = None
        self._layers: Record | None = None
        self._head: Record | None = None
        self._references: list[Any] = []  # what the step points to

    def record(self, kv: NativeKVCache, num_rows: int) -> None:
        """Record for steps of up to so many rows before the first one comes."""
        self._kv, self._layers = kv, self._recorded_layers(kv, _capacity(num_rows))
        self._head = self._recorded_head(_capacity(num_rows))

    def records(self, kv: AnyKVCache) -> tuple[Record, Record] | None:
        """The records of layers and head for this memory, if any, for a caller that fills the step by itself."""
        if self._kv is not kv or self._layers is None or self._head is None:
            return None
        return self._layers, self._head

    @property
    def num_rotations(self) -> int:
        """Rows of the ropes' tables."""
        return self.decoder.ropes.num_rows

    def forward(self, batch: Batch) -> Tensor:
        """[T, hidden]: the stream behind the last layer, until the next step overwrites it."""
        kv = cast(NativeKVCache, batch.kv)  # the backend made it
        tokens = len(batch.positions)
        if self._layers is None or self._kv is not kv or tokens > self._layers.program.capacity:
            self._kv, self._layers = kv, self._recorded_layers(kv, _capacity(tokens))
            self._head = None  # it reads where the layers wrote
        self._point_to(batch)
        self._layers.program.replay()
        return self._layers.output.rows(tokens)

    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """[S, vocabulary] in float32 of rows of the last step's `hidden`, until the next call overwrites them."""
        count = len(rows)
        if self._head is None or count > self._head.program.capacity:
            self._head = self._recorded_head(_capacity(count))
        self.step.num_logits, self.step.logit_rows = count, rows.data_ptr()
        self._head.program.replay()
        return self._head.output.rows(count)

    def _recorded_layers(self, kv: NativeKVCache, capacity: int) -> Record:
        program = Program(self.ops.library, capacity, self.step.address_of("num_tokens"))
        rotations = self.decoder.ropes.by_layer([addressof(table) for table in self._tables])
        batch = RecordedBatch(self.step, kv, rotations)
        with self.ops.recording(program, self.step):
            return Record(program, self.decoder.stream(batch))

    def _recorded_head(self, capacity: int) -> Record:
        program = Program(self.ops.library, capacity, self.step.address_of("num_logits"))
        hidden = self._layers.output  # type: ignore[union-attr]
        with self.ops.recording(program, self.step):
            return Record(program, self.decoder.logits(hidden, self.step.address_of("logit_rows")))

    def _point_to(self, batch: Batch) -> None:
        ropes, step = self.decoder.ropes, self.step
        ropes.grow_to(batch.rotations_end)
        for table, rope in zip(self._tables, ropes.tables, strict=True):
            table.cosines, table.sines = rope.cos.data_ptr(), rope.sin.data_ptr()
        starts, lengths = (numpy.array(counts, numpy.int32) for counts in (batch.query_starts, batch.context_lengths))
        tables = batch.block_tables.contiguous()
        self._references = [batch, starts, lengths, tables]
        step.num_tokens, step.num_rows, step.table_width = len(batch.positions), len(lengths), tables.shape[1]
        step.token_ids, step.positions = batch.token_ids.data_ptr(), batch.positions.data_ptr()
        step.rotations = batch.rotations.data_ptr()
        step.kv_slots, step.block_tables = batch.kv_slots.data_ptr(), tables.data_ptr()
        step.query_starts, step.context_lengths = starts.ctypes.data, lengths.ctypes.data
        step.num_adapted = 0
        if (adapted := batch.adapted) is not None:
            step.num_adapted = len(adapted.blocks)
            step.adapted, step.adapted_tokens = adapted.blocks.data_ptr(), adapted.tokens.data_ptr()


def _capacity(rows: int) -> int:
    return max(_FEWEST, 1 << (rows - 1).bit_length())
