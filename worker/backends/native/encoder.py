"""An encoder on native kernels: its stages run once to record their kernel calls, and are replayed stage by stage.

A record holds a limited number of patches, which are copied into it and out of it; only keys and values cover the whole
medium. All layers share a step, which gives each patch the position of its row's last one, so that it sees them all.
"""

from collections.abc import Callable
from ctypes import addressof, c_int32
from typing import Any, cast

import numpy

from ....kernels.arrays import FLOAT32, Array, address
from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.program import Buffer, Program
from ....kernels.cpu.structs import RotaryTable, Step
from ....records import dataclass
from ...device import HostDevice
from ...kv.kv_cache import KVShape, NativeKVCache
from ...media.encoder import Encoder
from ...media.encoder_pass import EncoderPass
from ...media.layout_rows import BLOCK_SIZE
from ...media.mergers import Merger
from ...media.positions import PatchRotation
from ...media.work import MOST_PATCHES
from ...steps.batch import LayerStep
from ...weights.weights import Rows

_FEWEST_BLOCKS = 128  # of keys and values in the smallest record
_PLAN = "penstock_plan_attention"

Stage = Callable[[], None]


@dataclass
class RecordedMerge:
    """A stage of a merger, for the number of rows in its count."""

    join: Callable[[Array, int], Array]
    counted: c_int32
    joined: Buffer
    compute: Stage
    found: Buffer

    def of(self, x: Array, num_frames: int) -> Array:
        joined = self.join(x, num_frames)
        self.counted.value = len(joined)
        self.joined.rows(len(joined))[:] = joined
        self.compute()
        return self.found.rows(len(joined))


@dataclass
class RecordedMerger:
    of_patches: Stage
    patches: Buffer
    stages: list[RecordedMerge]

    def merged(self, num_patches: int, num_frames: int) -> Array:
        self.of_patches()
        x = self.patches.rows(num_patches)
        for stage in self.stages:
            x = stage.of(x, num_frames)
        return x


@dataclass
class RecordedLayer:
    project: Stage
    heads: Buffer  # queries first
    attend: Stage


@dataclass
class EncoderRecord:
    """The stages and their buffers."""

    program: Program
    memory: NativeKVCache
    patches: Buffer
    stream: Buffer
    queries: Buffer
    plan: Stage  # of attention
    embed: Stage
    layers: list[RecordedLayer]
    mergers: dict[int, RecordedMerger]  # by part of the rows


class _Recording:
    """Cuts a program into stages while it is recorded."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._begin = 0

    def stage(self) -> Stage:
        """The calls recorded since the last stage, without the plan of attention."""
        calls, self._begin = self.program.calls[self._begin :], len(self.program.calls)
        return self.program.replaying([call for call in calls if call[0] != _PLAN])

    def merger(self, merger: Merger, stream: Buffer) -> RecordedMerger:
        patches = _buffer(merger.of_patches(Rows(stream)))
        found = RecordedMerger(self.stage(), patches, [])
        for stage in merger.stages:
            joined, counted = self.program.buffer(stage.width), c_int32()
            with self.program.counting(addressof(counted)):
                rows = _buffer(stage.compute(Rows(joined)))
            found.stages.append(RecordedMerge(stage.join, counted, joined, self.stage(), rows))
        return found


class RecordedPass(EncoderPass):
    """Replaces the encoder whose stages it records."""

    record: EncoderRecord
    _rotation: PatchRotation | None

    def __init__(self, encoder: Encoder, ops: NativeOperations, kind: str) -> None:
        """`kind` is the number format of keys and values."""
        self.ops = ops
        self.kind = kind
        self._table = RotaryTable()
        self._step = Step()
        self._num_blocks = 0  # of the record, if any
        self._references: list[Any] = []  # keeps alive what the step points to
        super().__init__(encoder, HostDevice(), FLOAT32)

    def merged(self, part: int, x: Array, row_frames: int) -> Array:
        self._step.num_tokens = len(x)
        self.record.stream.rows(len(x))[:] = x
        return self.record.mergers[part].merged(len(x), row_frames)

    def _rotate_by(self, rotation: PatchRotation | None) -> None:
        self._rotation = rotation
        if rotation is not None:
            self._table.cosines, self._table.sines = map(address, rotation)

    def _embedded(self, patches: Array) -> Array:
        self._step.num_tokens = len(patches)
        self.record.patches.rows(len(patches))[:] = patches
        self.record.embed()
        return self.record.stream.rows(len(patches))

    def _projected(self, layer: int, first: int, end: int) -> Array:
        recorded = self.record.layers[layer]
        self._bring(layer, first, end)
        recorded.project()
        return recorded.heads.rows(end - first)[:, : self.record.queries.width]

    def _attended(self, layer: int, first: int, end: int) -> Array:
        self._bring(layer, first, end)
        self.record.queries.rows(end - first)[:] = self.queries[first:end]
        self.record.plan()
        self.record.layers[layer].attend()
        return self.record.stream.rows(end - first)

    def _bring(self, layer: int, first: int, end: int) -> None:
        """Copy these patches' stream into the record, and set their slots in a layer's memory."""
        self.record.stream.rows(end - first)[:] = self.stream[first:end]
        layout = self._layouts[self.encoder.layers[layer].layout].between(first, end)
        own, step = numpy.arange(first, end), self._step  # each patch has its own row in the rotary table
        self._references = [layout, own]
        step.num_tokens, step.num_rows = end - first, len(layout.context_lengths)
        step.positions, step.rotations = address(layout.lasts), address(own)
        step.query_starts, step.context_lengths = address(layout.query_starts), address(layout.context_lengths)
        step.table_width, step.block_tables = layout.block_tables.shape[1], address(layout.block_tables)
        step.kv_slots = address(layout.kv_slots)

    def _make_room(self, num_blocks: int) -> None:
        """Record again if keys and values need more memory."""
        if num_blocks > self._num_blocks:
            self._num_blocks = max(_FEWEST_BLOCKS, 1 << (num_blocks - 1).bit_length())
            self.record = self._recorded(self._num_blocks)

    def _recorded(self, num_blocks: int) -> EncoderRecord:
        config, encoder = self.encoder.config, self.encoder
        width = config.num_heads * config.padded_head_dim
        memory = NativeKVCache.allocate(
            KVShape(1, config.num_heads, config.padded_head_dim), num_blocks, BLOCK_SIZE, self.kind
        )
        table = addressof(self._table) if config.family.rotates else None
        inputs = LayerStep(memory.of_layer(0), self._step, table)
        program = Program(self.ops.library, MOST_PATCHES, self._step.address_of("num_tokens"))
        recording = _Recording(program)
        with self.ops.recording(program, self._step):
            patches, queries = program.buffer(config.patch_numbers), program.buffer(width)
            stream = encoder.patch(Rows(patches))
            embed = recording.stage()
            layers, mergers = [], {}
            for number, layer in enumerate(encoder.layers):
                heads = _buffer(layer.project(stream, inputs))
                project = recording.stage()
                layer.attend(stream, Rows(queries), inputs)
                layers.append(RecordedLayer(project, heads, recording.stage()))
                for part in encoder.parts_behind(number):
                    mergers[part] = recording.merger(encoder.mergers[part], _buffer(stream))
        plan = program.replaying([call for call in program.calls if call[0] == _PLAN])
        return EncoderRecord(program, memory, patches, _buffer(stream), queries, plan, embed, layers, mergers)


def _buffer(rows: Rows) -> Buffer:
    """View rows as the buffer that they are while calls are recorded."""
    return cast(Buffer, rows)
