"""A decoder on a GPU: steps are captured as graphs and replayed, and a few are launched kernel by kernel.

A graph holds steps of up to so many rows, tokens of a row and tokens of context (`graph_keys.py`). A step uses the
smallest graph that holds it, padded with empty rows and tokens. All graphs are captured before the first request
(`graph_capture.py`); without a warm-up one of answers is captured when it is first needed. Only one small tensor of
counts changes from step to step: a graph's other inputs are at fixed addresses (slot table, KV memory, weights).

A graph of answers ends with the logits of all its tokens. One with prompts ends with the stream, since the places that
are drawn differ from step to step: their logits and tokens are launched.
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
from ...weights.weights import Rows
from ..torch.decoder import DeviceRopes
from ..torch.device import torch_device
from .cuda_graph import Capture, new_capture
from .device_batch import DeviceBatch, Inputs, Places, Room, inputs_of
from .graph_keys import (
    GraphKey,
    all_keys,
    fitting_context,
    fitting_drafted,
    fitting_prompts,
    fitting_size,
    prompt_context,
)

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
    hidden: Tensor  # the stream after the last layer; graphs share its memory
    replay: Callable[[], Tensor]  # returns the logits of all tokens; with prompts the stream
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
    most_tokens: int = 0  # of a captured step with prompts
    capture: Capture = field(default_factory=new_capture)
    # A step's logits are borrowed: a later capture in the step's pool may reuse their memory. So samplers, which read
    # them, have a separate pool.
    capture_choice: Capture = field(default_factory=new_capture)
    _graphs: dict[GraphKey, Graph] = field(default_factory=dict)
    _serving: dict[GraphKey, Graph | None] | None = None  # once all are captured: the graph for each key, if any
    _memory: ModelMemory | None = None
    _room: Tensor | None = None  # for the stream of any graph
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
        key = self._key_of(batch)
        if key is None or batch.num_segments > key.segments or (graph := self._graph_for(key, batch)) is None:
            return self._stream(batch.inputs(self.ops), batch)
        last = self._replay(graph, batch)
        if not key.has_prompts:
            self._last = last._replace(rows=batch.logit_rows) if batch.draws_everywhere else last
        return graph.hidden[: batch.num_tokens]

    def replayed(self, batch: DeviceBatch) -> Tensor:
        """Replay a graph for a pure decode batch within `captured_end`; return its logits row by row."""
        graph = self._graph_for(self._decode_key(batch), batch)
        self._last = self._replay(cast(Graph, graph), batch)  # the largest one holds every such step
        return self._last.logits

    def _replay(self, graph: Graph, batch: DeviceBatch) -> LastReplay:
        graph.columns.copy_(room_for(graph.key).packed(batch.step_rows), non_blocking=True)
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
        most, longest = len(table.is_taken), table.max_model_len
        most_tokens = 0 if table.media_tokens is not None else self.most_tokens  # whose kinds the host knows
        return all_keys(most, longest, adapted, self.sizes, self.captures_drafts, most_tokens)

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
        self._memory = self._last = self._serving = self._room = None
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

    def _key_of(self, batch: DeviceBatch) -> GraphKey | None:
        """The key of the graphs for steps like this one; None if they aren't captured."""
        if not self.captures_steps or batch.rotations_end > self.captured_end(batch.table):
            return None
        if batch.only_decodes:
            return self._decode_key(batch)
        most = len(batch.table.is_taken)
        if self.captures_drafts and batch.draws_everywhere:
            shape = fitting_drafted(len(batch.step_rows), int(batch.step_rows.num_tokens.max()), most)
            if shape is not None:
                return self._key(shape, batch)
        # Without a warm-up none is captured: it would be for its first step alone.
        if self._serving is None or not batch.is_of_text:
            return None
        shape = fitting_prompts(len(batch.step_rows), batch.num_tokens, most, self.most_tokens)
        if shape is None:
            return None
        key = self._key(shape, batch)
        return key._replace(context=prompt_context(shape[0], key.context, batch.table.max_model_len), has_prompts=True)

    def _decode_key(self, batch: DeviceBatch) -> GraphKey:
        return self._key((fitting_size(batch.num_tokens, len(batch.table.is_taken), self.sizes), 1), batch)

    def _key(self, shape: tuple[int, int], batch: DeviceBatch) -> GraphKey:
        context = fitting_context(max(batch.context_lengths), batch.table.max_model_len)
        return GraphKey(*shape, context, batch.adapters is not None)

    def _graph_for(self, key: GraphKey, batch: DeviceBatch) -> Graph | None:
        """The smallest graph that holds steps of this key; None if none does."""
        if self._serving is None or self._memory is not batch.memory:
            return self.captured(key, batch.table, batch.memory)
        if key not in self._serving:
            holding = [each for each in self._graphs if each.holds(key)]
            self._serving[key] = self._graphs[min(holding)] if holding else None
        return self._serving[key]

    def _room_for(self, size: int, device: torch.device) -> Tensor:
        """For the stream of so many tokens; a larger one's is made first, if there is any."""
        if self._room is None or len(self._room) < size:
            self._room = torch.empty(size, self.decoder.hidden_size, dtype=self.ops.activations, device=device)
        return self._room[:size]

    def _captured(self, key: GraphKey, table: SlotTable, memory: ModelMemory) -> Graph:
        start, size, placement = time.perf_counter(), key.num_tokens, self.decoder.placement
        device = torch_device(table.device)
        # Columns for no rows: a replay makes the inputs from their contents at that time.
        blank, room = DeviceBatch(table, table.no_rows(), memory), room_for(key)
        packed = room.packed(blank.step_rows).to(device)
        columns = room.columns(packed, blank.step_rows)
        hidden = self._room_for(size, device)
        adapted = None
        if key.has_adapters and placement.adapters is not None:
            adapted = DeviceLoraMapping.room(size, placement.adapters.config.max_adapters, device)

        def step() -> Tensor:
            inputs = inputs_of(columns, blank.table, self.ops, size, key.tokens, key.context, adapted)
            hidden.copy_(self._stream(inputs, blank))
            if key.has_prompts:
                return hidden
            return cast(Tensor, self.decoder.head(self.decoder.norm(Rows(hidden))))

        graph = Graph(key, packed, columns.places, adapted, hidden, self.capture(step), self.ropes.tables)
        _LOG.info("captured a step of %s, in %.2f s", key, time.perf_counter() - start)
        return graph


def room_for(key: GraphKey) -> Room:
    """For the columns of a graph's steps; one with prompts has no places."""
    return Room(key.rows, 1 if key.has_prompts else key.tokens, key.segments, key.tokens)
