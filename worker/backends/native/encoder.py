"""An encoder on native kernels: its stages are called once to record their kernel calls, and replayed stage by stage.

A record is for up to so many patches. Layers of one layout share a step, in which every patch has the place of its
row's last one: so it sees them all.
"""

from collections.abc import Callable
from ctypes import addressof
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
from ...steps.batch import LayerStep

_FEWEST = 256  # patches that a record is made for
_PLAN = "penstock_plan_attention"

Stage = Callable[[], None]


@dataclass
class RecordedInputs:
    """What layers read while they are recorded."""

    steps: list[Step]
    memory: NativeKVCache
    rotation: int  # the address of a rotary table

    def of_layout(self, layout: int) -> LayerStep:
        return LayerStep(self.memory.of_layer(0), self.steps[layout], self.rotation)


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
    merged: dict[int, tuple[Stage, Buffer]]  # by part of the rows


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
        self._references: list[Any] = []  # what the steps point to

    def begin(self, arrangement: Arrangement, rotation: TokenRotation) -> None:
        layouts = [layout_rows(lengths) for lengths in arrangement.layouts]
        num_patches, num_blocks = arrangement.num_patches, max(layout.num_blocks for layout in layouts)
        if num_patches > self._capacity or num_blocks > self._num_blocks:
            self._capacity = max(_FEWEST, 1 << (num_patches - 1).bit_length())
            self._num_blocks = max(num_blocks, self._capacity // BLOCK_SIZE)
            self.record = self._recorded(self._capacity, self._num_blocks)
        self._num_patches = num_patches
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
        stage, rows = self.record.merged[part]
        stage()
        return rows.rows(self._num_patches // self.encoder.config.merge**2)

    def _recorded(self, capacity: int, num_blocks: int) -> EncoderRecord:
        config, encoder = self.encoder.config, self.encoder
        shape = KVShape(1, config.num_heads, config.padded_head_dim)
        memory = NativeKVCache.allocate(shape, num_blocks, BLOCK_SIZE, self.kind)
        inputs = RecordedInputs(self._steps, memory, addressof(self._table))
        program = Program(self.ops.library, capacity, self._steps[0].address_of("num_tokens"))
        stages: list[int] = []  # where each begins among the calls
        merged: dict[int, tuple[int, Buffer]] = {}

        def begin_stage() -> int:
            stages.append(len(program.calls))
            return len(stages) - 1

        with self.ops.recording(program, self._steps[0]):
            begin_stage()
            patches = program.buffer(config.patch_numbers)
            stream = encoder.patch(patches)
            layers = []
            for number in range(config.num_layers):
                layers.append(begin_stage())
                encoder.layer(number, stream, inputs)
                for part in encoder.parts_behind(number):
                    merged[part] = begin_stage(), self._merge(program, part, stream)
        ends = [*stages[1:], len(program.calls)]

        def stage(number: int) -> Stage:
            calls = program.calls[stages[number] : ends[number]]
            return program.replaying([call for call in calls if call[0] != _PLAN])

        return EncoderRecord(
            program=program,
            memory=memory,
            patches=patches,
            stream=stream,
            plan=program.replaying([call for call in program.calls if call[0] == _PLAN]),
            embed=stage(0),
            layers=[stage(number) for number in layers],
            merged={part: (stage(number), rows) for part, (number, rows) in merged.items()},
        )

    def _merge(self, program: Program, part: int, stream: Buffer) -> Buffer:
        """The rows of one part. Neighbouring patches lie side by side, so joining them is to count differently."""
        merger, joined = self.encoder.mergers[part], self.encoder.config.merge**2
        of_patches = merger.of_patches(stream)
        with program.counting(self._steps[0].address_of("num_logits")):
            rows: Buffer = merger.of_rows(program.buffer_in(of_patches.memory, joined * of_patches.width))
        return rows

    def _point_to(self, layouts: list[LayoutRows], rotation: TokenRotation) -> None:
        cos, sin = rotation.cos.contiguous(), rotation.sin.contiguous()
        self._table.cosines, self._table.sines = cos.data_ptr(), sin.data_ptr()
        own = torch.arange(self._num_patches)  # each patch has a row of its own in that table
        self._references = [layouts, cos, sin, own]
        for step, layout in zip(self._steps, layouts, strict=True):
            step.num_tokens, step.num_rows = self._num_patches, len(layout.context_lengths)
            step.num_logits = self._num_patches // self.encoder.config.merge**2
            step.positions, step.rotations = layout.lasts.data_ptr(), own.data_ptr()
            step.query_starts = layout.query_starts.ctypes.data
            step.context_lengths = layout.context_lengths.ctypes.data
            tables, slots = layout.blocks
            step.table_width, step.block_tables, step.kv_slots = tables.shape[1], tables.data_ptr(), slots.data_ptr()
