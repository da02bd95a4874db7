"""Captures every graph that steps may replay, before the first request, the largest first.

The largest holds every pure decode step, and its memory was measured during warm-up. The others follow as long as the
memory planned for graphs lasts, those of steps with prompts and then with drafts at the end. A step whose own graph is
missing uses a larger one; one with prompts or drafts that none holds is launched. All ranks capture the same graphs.
"""

import logging
import time
from dataclasses import dataclass
from itertools import groupby, product

import torch

from ...kv.model_memory import ModelMemory
from ...ranks.parallel import Parallel
from ...sampler import Sampler
from ...steps.forward_pass import ForwardPass
from ...steps.slots import SlotTable
from ..backend import ReportProgress
from ..torch.device import torch_device
from .decoder import Graph, GraphedDecoder
from .graph_keys import GraphKey
from .sampler import GraphedSampler, SamplingKind

_LOG = logging.getLogger(__name__)
_MEASURED = 4  # graphs after the largest ones; their mean estimates the rest
_KINDS = [SamplingKind(*of) for of in product((False, True), repeat=2)]


@dataclass(frozen=True)
class GraphCapture:
    """The graphs of one model's steps, captured for one slot table and KV cache."""

    forward_pass: ForwardPass
    sample: Sampler
    table: SlotTable
    memory: ModelMemory
    ranks: Parallel

    def capture_all(self, most_bytes: int, on_progress: ReportProgress) -> None:
        """Capture graphs until they take this much memory; the largest is always captured."""
        decoder = self.forward_pass
        if not isinstance(decoder, GraphedDecoder) or not decoder.captures_steps:
            return
        start, taken = time.perf_counter(), MemoryMeter(torch_device(self.table.device))
        keys = decoder.keys(self.table)
        for number, key in enumerate(keys):
            if number and self._is_any(taken.bytes >= most_bytes):
                _LOG.warning(
                    "%d of %d sizes of steps are captured, which take the %d MiB planned for them; steps of the other "
                    "sizes are padded to these",
                    number, len(keys), most_bytes >> 20,
                )  # fmt: skip
                break
            self._capture(decoder, key)
            on_progress(number + 1, len(keys))
        decoder.complete()
        _LOG.info("captured steps in %.1f s and %d MiB", time.perf_counter() - start, taken.bytes >> 20)

    @torch.inference_mode()
    def estimate_bytes(self) -> int:
        """Estimate the bytes that all graphs will take from the largest ones and a few more; nothing stays captured."""
        decoder = self.forward_pass
        if not isinstance(decoder, GraphedDecoder) or not decoder.captures_steps:
            return 0
        taken, keys = MemoryMeter(torch_device(self.table.device)), decoder.keys(self.table)
        # The largest of each kind: later graphs fit into the memory that their kind's largest has taken.
        largest = [next(of_kind) for _, of_kind in groupby(keys, lambda key: key.kind)]
        others = [key for key in keys if key not in largest]
        for key in largest:
            self._capture(decoder, key)
        first = taken.bytes
        for key in others[:_MEASURED]:
            self._capture(decoder, key)
        each = (taken.bytes - first) / max(1, len(others[:_MEASURED]))
        decoder.forget()
        return first + int(each * len(others))

    @torch.inference_mode()
    def _capture(self, decoder: GraphedDecoder, key: GraphKey) -> None:
        graph = decoder.captured(key, self.table, self.memory)
        graph.logits = graph.replay()  # of no rows; now samplers can find them
        if self.ranks.rank == 0 and isinstance(self.sample, GraphedSampler) and not key.has_prompts:
            self._capture_choices(self.sample, graph)

    def _capture_choices(self, sample: GraphedSampler, graph: Graph) -> None:
        for kind in _KINDS:
            sample.captured(graph, self.table.parameters, self.table.histories, kind)

    def _is_any(self, mine: bool) -> bool:
        return any(flag for (flag,) in self.ranks.exchange([mine]))


class MemoryMeter:
    """Measures how much GPU memory allocations and the driver have taken since it was created."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free = self._now()

    @property
    def bytes(self) -> int:
        return max(0, self._free - self._now())

    def _now(self) -> int:
        if self._device.type != "cuda":
            return 0
        torch.cuda.synchronize(self._device)
        return torch.cuda.mem_get_info(self._device)[0]
