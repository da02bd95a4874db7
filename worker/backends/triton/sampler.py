"""Samples the tokens of a captured step on a GPU with a second graph, which reads the step's columns and logits.

It is a separate graph because grammar masks arrive late, while the step is running. Its other inputs are at fixed
addresses too: the table of parameters, the histories, a buffer for masks. Steps launched kernel by kernel, and rows
with adjusted logits, are sampled by separate launches, with the same tokens.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy
import torch
from torch import Tensor

from ....kernels.reference.sampling.race import DeviceMask
from ....kernels.sampling import NO_ROW, DeviceDraws, Sampling
from ...sampler import Mask, ParameterTable, SamplerOutput, SamplingRows, are_adjusted
from ...sampler.adjustments import adjust, allow
from ..torch.device import pinned, torch_device
from .decoder import Graph, GraphedDecoder
from .graph_keys import MOST_PLACES

_LOG = logging.getLogger(__name__)

Choose = Callable[[Tensor, DeviceDraws, DeviceMask | None], Tensor]  # like `choose_on_device`
Replay = Callable[[], Tensor]  # returns the tokens of all rows


class SamplingKind(NamedTuple):
    """The kind of sampling in a graph."""

    are_best: bool
    is_masked: bool


@dataclass
class GraphedSampler:
    """Replaces the sampler for captured steps."""

    decoder: GraphedDecoder
    ops: Sampling
    choose: Choose
    _room: DeviceMask | None = None

    def __call__(self, logits: Tensor, rows: SamplingRows, mask: Mask | None) -> SamplerOutput:
        graph = self.decoder.graph_of(logits)
        if graph is None or are_adjusted(rows):
            return self._without_graph(logits, rows, mask)
        if mask is not None:
            self._take(mask, rows, graph.size)
        replay = self.captured(graph, rows.parameters, rows.histories, SamplingKind(rows.are_greedy, mask is not None))
        rows.parameters.device.wait_for_host_copies()  # this replay overwrites the last one's tokens
        return SamplerOutput(replay()[: len(rows)])

    def _without_graph(self, logits: Tensor, rows: SamplingRows, mask: Mask | None) -> SamplerOutput:
        """Sample without waiting for the device; `choose` draws other tokens than `sample`, as likely ones."""
        if mask is not None:
            allow(self.ops, logits, rows, mask)
        if rows.wants.any():
            adjust(self.ops, logits, rows)
        return SamplerOutput(self.choose(logits, rows.device_draws(), None))

    def captured(self, graph: Graph, parameters: ParameterTable, histories: Tensor, kind: SamplingKind) -> Replay:
        """The graph that samples a step graph's tokens, captured on first use."""
        if kind not in graph.choices:
            graph.choices[kind] = self._captured(graph, parameters, histories, kind)
        return graph.choices[kind]

    def _take(self, mask: Mask, rows: SamplingRows, size: int) -> None:
        """Copy the mask into the buffer of graphs of this size, even before a capture, which runs the graph once."""
        lines = numpy.full(size, NO_ROW, numpy.int32)
        lines[mask.rows] = numpy.arange(len(mask.rows))
        self._room_for(rows.parameters).take(*(pinned(torch.from_numpy(part)) for part in (lines, mask.bits)))

    def _room_for(self, parameters: ParameterTable) -> DeviceMask:
        most = max(len(parameters.kinds), *self.decoder.sizes, MOST_PLACES)
        if self._room is None or len(self._room.lines) != most:  # graphs for another table are gone by now
            self._room = DeviceMask.room(most, parameters.vocab_size, torch_device(parameters.device))
        return self._room

    def _captured(self, graph: Graph, parameters: ParameterTable, histories: Tensor, kind: SamplingKind) -> Replay:
        start = time.perf_counter()
        draws = parameters.device_draws(histories, graph.places.slots, graph.places.positions, kind.are_best)
        mask = self._room_for(parameters).first(graph.size) if kind.is_masked else None

        def choice() -> Tensor:
            # A step is replayed before its tokens are chosen.
            return self.choose(cast(Tensor, graph.logits), draws, mask)

        replay = self.decoder.capture_choice(choice)
        which = ("best" if kind.are_best else "drawn") + (", masked" if kind.is_masked else "")
        seconds = time.perf_counter() - start
        _LOG.info("captured the choice of %d tokens, %s, in %.2f s", graph.size, which, seconds)
        return replay
