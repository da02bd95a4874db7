"""A decoder on a GPU: steps of answers are captured as graphs and replayed, others are launched kernel by kernel.

A graph holds steps of up to so many rows, tokens of a row and tokens of context (`graph_keys.py`). A step uses the
smallest graph that holds it, padded with empty rows and tokens. All graphs are captured before the first request
(`graph_capture.py`); without a warm-up one is captured when it is first needed. Only one small tensor of counts changes
from step to step: a graph's other inputs are at fixed addresses (slot table, KV memory, weights).
"""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from ....kernels.paged import Rotation
from ....kernels.triton.products.lora import DeviceLoraMapping
from ...device import Device
from ...kv.model_memory import ModelMemory
from ...layers.decoder import Decoder, LayeredStream
from ...steps.slots import SlotTable
from ...steps.step_rows import StepRows
from ...weights.weights import Rows
from ..torch.decoder import DeviceRopes
from ..torch.device import torch_device
from .cuda_graph import Capture, new_capture
from .device_batch import DeviceBatch, Inputs, Places, StepColumns, inputs_of, packed
from .graph_keys import GraphKey, all_keys, fitting_context, fitting_drafted, fitting_size

if TYPE_CHECKING:  # its kernels import triton
    from ....kernels.triton.operations import TritonOperations

_LOG = logging.getLogger(__name__)


@dataclass
class Graph:
    """One captured step."""

    key: GraphKey
    columns: Tensor  # int32: the step's counts
    places: Places  # which belong to its logits
    adapted: DeviceLoraMapping | None  # which rows have an adapter, if any
    hidden: Tensor  # the stream after the last layer
    replay: Callable[[], Tensor]  # returns the logits of all tokens
    tables: object = None  # its rotary tables, kept alive when longer ones replace them
    logits: Tensor | None = None  # of the last replay
    choices: dict[Hashable, Callable[[], Tensor]] = field(default_factory=dict)  # captured samplers of the logits

    @property
    def size(self) -> int:
        """The number of its tokens, each of which has logits."""
        return len(self.hidden)


class LastReplay(NamedTuple):
    """The last step, if a graph was replayed for it."""

    graph: Graph
    logits: Tensor
    rows: Tensor | None = None  # the hidden states' rows that belong to the logits, if each draws a token


@dataclass
class GraphedDecoder:
    """Replaces the decoder whose steps it captures."""

    decoder: Decoder
    device: Device
    captures_steps: bool
    sizes: tuple[int, ...] = ()  # captured numbers of rows; empty: those of `fitting_size`
    captures_drafts: bool = False  # steps with drafts, too
    capture: Capture = field(default_factory=new_capture)
    # A step's logits are borrowed: a later capture in the step's pool may reuse their memory. So samplers, which read
    # them, have a separate pool.
    capture_choice: Capture = field(default_factory=new_capture)
    _graphs: dict[GraphKey, Graph] = field(default_factory=dict)
    _serving: dict[GraphKey, Graph | None] | None = None  # once all are captured: the graph for each key, if any
    _memory: ModelMemory | None = None
    _last: LastReplay | None = None

    @property
    def num_layers(self) -> int:
        return len(self.decoder.layers)

    @cached_property
    def _layered(self) -> LayeredStream:
        return LayeredStream(self.decoder)

    @cached_property
    def ropes(self) -> DeviceRopes:
        return DeviceRopes(self.decoder.ropes, self.device)

    @property
    def ops(self) -> "TritonOperations":
        return cast("TritonOperations", self.decoder.placement.ops)  # of the backend that made this

    @torch.inference_mode()
    def forward(self, batch: DeviceBatch) -> Tensor:
        """Return the stream after the last layer, [T, hidden], valid until the next step."""
        self._last = None
        shape = self._shape_of(batch)
        if shape is None or (graph := self._graph_for(shape, batch)) is None:
            return self._stream(batch.inputs(self.ops), batch)
        last = self._replay(graph, batch)
        self._last = last._replace(rows=batch.logit_rows) if batch.draws_everywhere else last
        return graph.hidden[: batch.num_tokens]

    def replayed(self, batch: DeviceBatch) -> Tensor:
        """Replay a graph for a pure decode batch within `captured_end`; return its logits row by row."""
        graph = self._graph_for(self._decode_shape(batch), batch)
        self._last = self._replay(cast(Graph, graph), batch)  # the largest one holds every such step
        return self._last.logits

    def _replay(self, graph: Graph, batch: DeviceBatch) -> LastReplay:
        graph.columns.copy_(packed(batch.step_rows, *graph.key.shape), non_blocking=True)
        if graph.adapted is not None:
            graph.adapted.take(batch.adapters)
        graph.logits = graph.replay()
        return LastReplay(graph, graph.logits[: batch.num_tokens])

    @torch.inference_mode()
    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Return float32 logits, [S, vocabulary], of rows of the last step's `hidden`, valid until the next step."""
        if self._last is not None and self._last.rows is rows:
            return self._last.logits
        return cast(Tensor, self.decoder.logits(Rows(hidden), rows))

    def graph_of(self, logits: Tensor) -> Graph | None:
        """The graph that these logits come from, if the last step replayed one."""
        return self._last.graph if self._last is not None and self._last.logits is logits else None

    def keys(self, table: SlotTable) -> list[GraphKey]:
        """The keys of all graphs for steps of these slots. The first, the largest, holds every pure decode step."""
        adapted = (True, False) if self.decoder.placement.adapters is not None else (False,)
        return all_keys(len(table.is_taken), table.max_model_len, adapted, self.sizes, self.captures_drafts)

    def captured(self, key: GraphKey, table: SlotTable, memory: ModelMemory) -> Graph:
        """The graph for a key, captured on first use."""
        if self._memory is not memory:
            self.forget()
            self._memory = memory
        if key not in self._graphs:
            self._graphs[key] = self._captured(key, table, memory)
        return self._graphs[key]

    def complete(self) -> None:
        """Capture nothing from now on: a step uses the smallest graph that holds it."""
        self._serving = {}

    def forget(self) -> None:
        """Free all graphs. Samplers refer to their step's graph, and these cycles must be broken."""
        for graph in self._graphs.values():
            graph.choices.clear()
        self._graphs.clear()
        self._memory = self._last = self._serving = None
        self.capture, self.capture_choice = new_capture(), new_capture()  # a freed pool can't be reused

    def captured_end(self, table: SlotTable) -> int:
        """Rows of the rotary tables that captured steps may read."""
        return self.decoder.ropes.end_of(table.max_model_len)

    @torch.inference_mode()
    def compute_layers(self, batch: DeviceBatch, first: int, end: int) -> None:
        if first == 0:
            self._prepare(batch.inputs(self.ops), batch)
        self._layered.compute(batch, first, end)

    def _stream(self, inputs: Inputs, batch: DeviceBatch) -> Tensor:
        self._prepare(inputs, batch)
        return cast(Tensor, self.decoder.stream(batch))

    def _prepare(self, inputs: Inputs, batch: DeviceBatch) -> None:
        """Set the inputs that layers read."""
        ropes = self.ropes
        ropes.grow_to(max(self.captured_end(batch.table), batch.rotations_end if len(batch.step_rows) else 0))
        if (by_axis := batch.rotations_by_axis) is not None:
            of_tokens = torch.arange(by_axis.shape[1], device=inputs.rotations.device)
            rotations = [Rotation(rows.cos, rows.sin, of_tokens) for rows in ropes.by_axis(by_axis)]
        else:
            rotations = [Rotation(table.cos, table.sin, inputs.rotations, table.query_scales) for table in ropes.tables]
        batch.take(inputs, self.decoder.ropes.by_layer(rotations))

    def _shape_of(self, batch: DeviceBatch) -> tuple[int, int] | None:
        """The rows and tokens of a row of the graphs for steps like this one; None if they aren't captured."""
        if not self.captures_steps or batch.rotations_end > self.captured_end(batch.table):
            return None
        if batch.only_decodes:
            return self._decode_shape(batch)
        if not self.captures_drafts or not batch.draws_everywhere:
            return None
        most, tokens = len(batch.table.is_taken), int(batch.step_rows.num_tokens.max())
        return fitting_drafted(len(batch.step_rows), tokens, most)

    def _decode_shape(self, batch: DeviceBatch) -> tuple[int, int]:
        return fitting_size(batch.num_tokens, len(batch.table.is_taken), self.sizes), 1

    def _graph_for(self, shape: tuple[int, int], batch: DeviceBatch) -> Graph | None:
        """The smallest graph of at least this shape that holds the step; None if none does."""
        context = fitting_context(max(batch.context_lengths), batch.table.max_model_len)
        key = GraphKey(*shape, context, batch.adapters is not None)
        if self._serving is None or self._memory is not batch.memory:
            return self.captured(key, batch.table, batch.memory)
        if key not in self._serving:
            holding = [each for each in self._graphs if each.holds(key)]
            self._serving[key] = self._graphs[min(holding)] if holding else None
        return self._serving[key]

    def _captured(self, key: GraphKey, table: SlotTable, memory: ModelMemory) -> Graph:
        start, size, placement = time.perf_counter(), key.num_tokens, self.decoder.placement
        device, dtype = torch_device(table.device), self.ops.activations
        # Columns for no rows: a replay makes the inputs from their contents at that time.
        blank = DeviceBatch(table, StepRows.none(), memory)
        packed_columns = packed(blank.step_rows, *key.shape).to(device)
        columns, places = StepColumns.shaped(packed_columns, key.rows), Places.shaped(packed_columns, *key.shape)
        hidden = torch.empty(size, self.decoder.hidden_size, dtype=dtype, device=device)
        adapted = None
        if key.has_adapters and placement.adapters is not None:
            adapted = DeviceLoraMapping.room(size, placement.adapters.config.max_adapters, device)

        def step() -> Tensor:
            are_answers = key.tokens == 1
            inputs = inputs_of(columns, blank.table, self.ops, size, key.tokens, key.context, adapted, are_answers)
            hidden.copy_(self._stream(inputs, blank))
            return cast(Tensor, self.decoder.head(self.decoder.norm(Rows(hidden))))

        graph = Graph(key, packed_columns, places, adapted, hidden, self.capture(step), self.ropes.tables)
        _LOG.info("captured a step of %s, in %.2f s", key, time.perf_counter() - start)
        return graph
