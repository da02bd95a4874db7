"""The chunk of a prompt that passes through the layers over several steps, next to their rows.

Layers compute it alone, with memory of their own between steps. Its slot's tables and counts are in the slot table.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.media import MediaRows
from ...protocol.messages import ChunkLayers
from ..plan_error import require
from .forward_pass import ForwardPass
from .slots import SlotTable
from .step_rows import StepRows

# Makes the inputs of rows, some of whose tokens get rows of media.
BatchOf = Callable[[StepRows, Sequence[MediaRows]], Any]


class LayeredChunk:
    def __init__(self, table: SlotTable, forward_pass: ForwardPass, batch_of: BatchOf) -> None:
        self._table = table
        self._forward_pass = forward_pass
        self._batch_of = batch_of
        self._batch: Any = None
        self._num_computed = 0  # layers

    def compute(self, layers: ChunkLayers) -> None:
        """Compute layers of the chunk in progress, or begin another one with them."""
        table, forward_pass, slot = self._table, self._forward_pass, layers.slot
        if layers.first_layer == 0:
            self._batch = self._batch_of(table.begin_layers(layers), layers.media)
            self._num_computed = 0
        begun = table.begun
        is_own = begun is not None and (begun.slots[0], begun.num_tokens[0]) == (slot, layers.num_tokens)
        require(is_own, f"goes on with a chunk of {layers.num_tokens} tokens of slot {slot}, which hasn't begun")
        require(
            self._num_computed == layers.first_layer < layers.end_layer <= forward_pass.num_layers,
            f"computes layers {layers.first_layer} to {layers.end_layer} of {forward_pass.num_layers} for slot {slot}, "
            f"with {self._num_computed} done",
        )
        forward_pass.compute_layers(self._batch, layers.first_layer, layers.end_layer)
        self._num_computed = layers.end_layer
        if layers.end_layer == forward_pass.num_layers:
            table.end_layers()
            self._batch = None
