"""An encoder on native kernels: its stages are called once to record their kernel calls, and replayed stage by stage.

A record is for up to so many patches. Layers of one layout share a step, in which every patch has the place of its
row's last one: so it sees them all.
"""

from collections.abc import Callable
from ctypes import addressof, c_int32
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....kernels import TokenRotation
from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.program import Buffer, Program, RotaryTable, Step
from ...kv.kv_cache import KVShape, NativeKVCache
from ...media.arrangement import Arrangement
from ...media.encoder import Encoder
from ...media.layout_rows import BLOCK_SIZE, LayoutRows, layout_rows
from ...media.mergers import Merger
from ...steps.batch import LayerStep

_FEWEST = 256  # patches that a record is made for
_PLAN = "penstock_plan_attention"

Stage = Callable[[], None]


@dataclass
class RecordedInputs:
    """What layers read while they are recorded."""

    steps: list[Step]
    memory: NativeKVCache
    rotation: int | None  # the address of a rotary table, where the encoder rotates

    def of_layout(self, layout: int) -> LayerStep:
        return LayerStep(self.memory.of_layer(0), self.steps[layout], self.rotation)


@dataclass
class RecordedMerge:
    """A stage of a merger, for as many rows as are counted."""

    join: Callable[[Tensor, Arrangement], Tensor]
    counted: c_int32
    joined: Buffer
    compute: Stage
    found: Buffer

    def of(self, x: Tensor, arrangement: Arrangement) -> Tensor:
        joined = self.join(x, arrangement)
        self.counted.value = len(joined)
        self.joined.rows(len(joined)).copy_(joined)
        self.compute()
        return self.found.rows(len(joined))


@dataclass
class RecordedMerger:
    of_patches: Stage
    patches: Buffer
    stages: list[RecordedMerge]

    def merged(self, arrangement: Arrangement) -> Tensor:
        self.of_patches()
        x = self.patches.rows(arrangement.num_patches)
        for stage in self.stages:
            x = stage.of(x, arrangement)
        return x


@dataclass
class EncoderRecord:
    """The stages of up to `capacity` patches, and where they read and write."""

    program: Program
    memory: NativeKVCache
    patches: Buffer
    stream: Buffer
    plan: Stage  # of attention, for the medium that begins
    embed: Stage
    layers: list[Stage]
    mergers: dict[int, RecordedMerger]  # by part of the rows


class _Recording:
    """Cuts a program into stages while it is recorded."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._begin = 0

    def stage(self) -> Stage:
        """What was recorded since the last one, apart from the plan of attention."""
        calls, self._begin = self.program.calls[self._begin :], len(self.program.calls)
        return self.program.replaying([call for call in calls if call[0] != _PLAN])

    def merger(self, merger: Merger, stream: Buffer) -> RecordedMerger:
        patches = merger.of_patches(stream)
        found = RecordedMerger(self.stage(), patches, [])
        for stage in merger.stages:
            joined, counted = self.program.buffer(stage.width), c_int32()
            with self.program.counting(addressof(counted)):
                rows = stage.compute(joined)
            found.stages.append(RecordedMerge(stage.join, counted, joined, self.stage(), rows))
        return found


class RecordedPass:
    """Replaces the encoder whose stages it records."""

    def __init__(self, encoder: Encoder, ops: NativeOperations, kind: str) -> None:
        """`kind` is the number format of keys and values."""
        self.encoder = encoder
        self.ops = ops
        self.kind = kind
        self._steps = [Step() for _ in range(1 if encoder.config.window is None else 2)]
        self._table = RotaryTable()
        self.record: EncoderRecord
        self._capacity = self._num_blocks = 0  # of the record, if there is one
        self._num_patches = 0
        self._arrangement: Arrangement
        self._references: list[Any] = []  # what the steps point to

    def begin(self, arrangement: Arrangement, rotation: TokenRotation | None) -> None:
        layouts = [layout_rows(lengths) for lengths in arrangement.layouts]
        num_patches, num_blocks = arrangement.num_patches, max(layout.num_blocks for layout in layouts)
        if num_patches > self._capacity or num_blocks > self._num_blocks:
            self._capacity = max(_FEWEST, 1 << (num_patches - 1).bit_length())
            self._num_blocks = max(num_blocks, self._capacity // BLOCK_SIZE)
            self.record = self._recorded(self._capacity, self._num_blocks)
        self._num_patches, self._arrangement = num_patches, arrangement
        self._point_to(layouts, rotation)
        self.record.plan()

    def embed(self, patches: Tensor) -> None:
        self.record.patches.rows(len(patches)).copy_(patches)
        self.record.embed()

    @property
    def stream(self) -> Tensor:
        return self.record.stream.rows(self._num_patches)

    def layer(self, number: int) -> None:
        self.record.layers[number]()

    def merged(self, part: int) -> Tensor:
        return self.record.mergers[part].merged(self._arrangement)

    def _recorded(self, capacity: int, num_blocks: int) -> EncoderRecord:
        config, encoder = self.encoder.config, self.encoder
        shape = KVShape(1, config.num_heads, config.padded_head_dim)
        memory = NativeKVCache.allocate(shape, num_blocks, BLOCK_SIZE, self.kind)
        inputs = RecordedInputs(self._steps, memory, addressof(self._table) if config.family.rotates else None)
        program = Program(self.ops.library, capacity, self._steps[0].address_of("num_tokens"))
        recording = _Recording(program)
        with self.ops.recording(program, self._steps[0]):
            patches = program.buffer(config.patch_numbers)
            stream = encoder.patch(patches)
            embed = recording.stage()
            layers, mergers = [], {}
            for number in range(config.num_layers):
                encoder.layer(number, stream, inputs)
                layers.append(recording.stage())
                for part in encoder.parts_behind(number):
                    mergers[part] = recording.merger(encoder.mergers[part], stream)
        plan = program.replaying([call for call in program.calls if call[0] == _PLAN])
        return EncoderRecord(program, memory, patches, stream, plan, embed, layers, mergers)

    def _point_to(self, layouts: list[LayoutRows], rotation: TokenRotation | None) -> None:
        own = torch.arange(self._num_patches)  # each patch has a row of its own in the rotary table
        self._references = [layouts, own]
        if rotation is not None:
            cos, sin = rotation.cos.contiguous(), rotation.sin.contiguous()
            self._table.cosines, self._table.sines = cos.data_ptr(), sin.data_ptr()
            self._references += [cos, sin]
        for step, layout in zip(self._steps, layouts, strict=True):
            step.num_tokens, step.num_rows = self._num_patches, len(layout.context_lengths)
            step.positions, step.rotations = layout.lasts.data_ptr(), own.data_ptr()
            step.query_starts = layout.query_starts.ctypes.data
            step.context_lengths = layout.context_lengths.ctypes.data
            tables, slots = layout.blocks
            step.table_width, step.block_tables, step.kv_slots = tables.shape[1], tables.data_ptr(), slots.data_ptr()
