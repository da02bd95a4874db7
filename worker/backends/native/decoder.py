"""A decoder, or a head that drafts, on native kernels: its layers run once to record their kernel calls, and every step
replays these.

A record holds the addresses of the model's memory and of buffers for a number of tokens. One is made when a worker
starts; other memory or a larger step needs a new one, which takes milliseconds. Chunks that are computed layer by layer
have a record of their own, since its buffers keep the stream between steps.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol, cast

from ....kernels.arrays import DeviceArray, address
from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.program import Buffer, Program
from ....kernels.cpu.structs import Step
from ....kernels.operations import StepField
from ....records import dataclass
from ...kv.model_memory import ModelMemory
from ...layers.decoder import Decoder
from ...layers.rope import Ropes
from ...steps.batch import Batch, LayerInputs
from ...weights.weights import Rows
from .recorded_steps import RecordedSteps, capacity


class Recordable(Protocol):
    """What is recorded."""

    @property
    def ropes(self) -> Ropes: ...

    @property
    def layers(self) -> Sequence[Any]: ...

    def stream(self, batch: LayerInputs) -> Rows:
        """Return the stream after the last layer, [T, hidden], for `logits`."""

    def logits(self, hidden: Rows, rows: StepField) -> Rows:
        """Return float32 logits of these rows."""


@dataclass
class Record:
    """A recorded part of a model's step for up to `capacity` rows, and the address of its output."""

    program: Program
    output: Buffer


class RecordedLayers:
    """The layers, each by itself, for the chunk that passes through them over several steps."""

    def __init__(self, decoder: Decoder, ops: NativeOperations) -> None:
        self.decoder = decoder
        self.ops = ops
        self._steps = RecordedSteps(decoder.ropes)
        self._program: Program | None = None
        self._layers: list[Callable[[], None]] = []

    def begin(self, batch: Batch) -> None:
        tokens = len(batch.positions)
        if self._program is None or self._steps.memory is not batch.memory or tokens > self._program.capacity:
            self._record(batch.memory, tokens)
        self._steps.point_to(batch)

    def compute(self, first: int, end: int) -> None:
        for layer in self._layers[first:end]:
            layer()

    def _record(self, memory: ModelMemory, tokens: int) -> None:
        borders = [0]
        with self._steps.recording(self.ops, memory, tokens) as (self._program, batch):
            between = self.decoder.begin(batch)
            for layer in range(len(self.decoder.layers)):
                between = self.decoder.through(layer, between, batch)
                borders.append(len(self._program.calls))
        calls = self._program.calls
        self._layers = [self._program.replaying(calls[first:end]) for first, end in pairwise(borders)]


class RecordedStream:
    """Replaces the decoder or head whose calls it records."""

    def __init__(self, source: Recordable, ops: NativeOperations) -> None:
        self.source = source
        self.ops = ops
        self._steps = RecordedSteps(source.ropes)
        self._layers: Record | None = None
        self._head: Record | None = None

    @property
    def steps(self) -> list[Step]:
        """What recorded steps read, by group of layers."""
        return self._steps.steps

    def record(self, memory: ModelMemory, num_rows: int) -> None:
        """Record steps of up to so many rows in advance."""
        self._layers = self._recorded_layers(memory, num_rows)
        self._head = self._recorded_head(num_rows)

    def records(self, memory: ModelMemory) -> tuple[Record, Record] | None:
        """The records of layers and head for this memory, if any, for a caller that fills the steps itself."""
        if self._steps.memory is not memory or self._layers is None or self._head is None:
            return None
        return self._layers, self._head

    @property
    def num_rotations(self) -> int:
        """The number of rows in the ropes' tables."""
        return self.source.ropes.num_rows

    @property
    def num_layers(self) -> int:
        return len(self.source.layers)

    def forward(self, batch: Batch) -> DeviceArray:
        """Return the stream after the last layer, [T, hidden], valid until the next step."""
        tokens = len(batch.positions)
        if self._layers is None or self._steps.memory is not batch.memory or tokens > self._layers.program.capacity:
            self._layers = self._recorded_layers(batch.memory, tokens)
            self._head = None  # its input is the layers' output
        self._steps.point_to(batch)
        self._layers.program.replay()
        self._steps.point_to_tables()  # a fast step expects them
        return self._layers.output.rows(tokens)

    def last_hidden(self, num_tokens: int) -> DeviceArray:
        """Return the stream after the last layer of the step before, which had so many tokens."""
        return self._layers.output.rows(num_tokens)  # type: ignore[union-attr]

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray:
        """Return float32 logits, [S, vocabulary], of rows of the last step's `hidden`, valid until the next call."""
        count = len(rows)
        if self._head is None or count > self._head.program.capacity:
            self._head = self._recorded_head(count)
        self.steps[0].num_logits, self.steps[0].logit_rows = count, address(rows)
        self._head.program.replay()
        return self._head.output.rows(count)

    def _recorded_layers(self, memory: ModelMemory, num_rows: int) -> Record:
        if self._steps.memory is not memory:
            self._head = None
        with self._steps.recording(self.ops, memory, num_rows) as (program, batch):
            return Record(program, cast(Buffer, self.source.stream(batch)))

    def _recorded_head(self, num_rows: int) -> Record:
        program = Program(self.ops.library, capacity(num_rows), self.steps[0].address_of("num_logits"))
        hidden = Rows(self._layers.output)  # type: ignore[union-attr]
        with self.ops.recording(program, self.steps[0]):
            logits = self.source.logits(hidden, self.steps[0].address_of("logit_rows"))
            return Record(program, cast(Buffer, logits))


class RecordedDecoder(RecordedStream):
    """Computes chunks layer by layer, too."""

    def __init__(self, decoder: Decoder, ops: NativeOperations) -> None:
        super().__init__(decoder, ops)
        self.decoder = decoder
        self._chunk: RecordedLayers | None = None  # from the first such chunk on

    def compute_layers(self, batch: Batch, first: int, end: int) -> None:
        if self._chunk is None:
            self._chunk = RecordedLayers(self.decoder, self.ops)
        if first == 0:
            self._chunk.begin(batch)
        self._chunk.compute(first, end)
