"""A decoder whose layers compute at once on tensors, with its rotary tables on their device."""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor

from ....kernels import HostRows, Segments, TokenRotation
from ....kernels.arrays import Array, DeviceArray
from ....kernels.torch.arrays import tensor_of, torch_dtype
from ...device import Device
from ...layers.decoder import Decoder, LayeredStream
from ...layers.rope import Ropes
from ...steps.batch import Batch
from ...weights.weights import Rows
from .tensor_cache import KVCache


class RotaryTable(NamedTuple):
    """A rope's table, or the rows of a step's tokens in it."""

    cos: DeviceArray  # float32 [rows, head_dim]
    sin: DeviceArray
    query_scales: DeviceArray | None = None  # [rows]

    def each(self, function: Callable[[DeviceArray], Tensor]) -> "RotaryTable":
        """The results of a function of each of these."""
        return RotaryTable(*(function(own) for own in self if own is not None))


class DeviceRopes:
    """A model's rotary tables on a device, which get their rows when the host's have grown."""

    def __init__(self, ropes: Ropes, device: Device) -> None:
        self.ropes = ropes
        self.device = device
        self.tables: list[RotaryTable] = []
        self._num_rows = 0

    def grow_to(self, end: int) -> None:
        self.ropes.grow_to(end)
        if self._num_rows != self.ropes.num_rows:
            self._num_rows = self.ropes.num_rows
            tables = (RotaryTable(rope.cos, rope.sin, rope.query_scales) for rope in self.ropes.tables)
            self.tables = [table.each(self.device.put) for table in tables]

    def by_axis(self, rows: Array) -> list[RotaryTable]:
        """The rows of tokens in each table, by time, height and width: [3, T], on the host."""
        return [RotaryTable(*map(self.device.put, rope.by_axis(rows))) for rope in self.ropes.tables]


class TensorDecoder:
    """Computes batches with the decoder that it has."""

    def __init__(self, decoder: Decoder, device: Device) -> None:
        self.decoder = decoder
        self.device = device
        self.ropes = DeviceRopes(decoder.ropes, device)
        self._dtype = torch_dtype(decoder.placement.activations)
        self._layered = LayeredStream(decoder)

    @property
    def num_layers(self) -> int:
        return len(self.decoder.layers)

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Return the stream after the last layer, [T, hidden], for `logits`."""
        self._prepare(batch)
        return cast(Tensor, self.decoder.stream(batch))

    @torch.inference_mode()
    def compute_layers(self, batch: Batch, first: int, end: int) -> None:
        if first == 0:
            self._prepare(batch)
        self._layered.compute(batch, first, end)

    def _prepare(self, batch: Batch) -> None:
        """Set the inputs that layers read."""
        self.ropes.grow_to(batch.rotations_end)
        batch.rows = _rows_of_groups(batch)
        batch.rotations_by_layer = self.decoder.ropes.by_layer([self._rotation(rows) for rows in self._rows(batch)])

    @torch.inference_mode()
    def logits(self, hidden: Tensor, rows: Tensor) -> Tensor:
        """Return float32 logits of these rows, [S, vocabulary]."""
        return cast(Tensor, self.decoder.logits(Rows(hidden), rows))

    def _rows(self, batch: Batch) -> list[RotaryTable]:
        """The rows of the step's tokens in each table."""
        shifted = batch.shifted_rotations
        if shifted is not None and shifted.ndim == 2:
            return self.ropes.by_axis(shifted)
        rows = batch.positions if shifted is None else self.device.put(shifted)
        return [table.each(lambda own: own[rows]) for table in self.ropes.tables]

    def _rotation(self, rows: RotaryTable) -> TokenRotation:
        """As heads are rotated by it, in their number format."""
        return TokenRotation(*rows.each(lambda own: own.view(len(own), 1, -1).to(self._dtype)))


def _rows_of_groups(batch: Batch) -> list[HostRows | Segments]:
    ends = [batch.seen_ends_of(number) for number in range(len(batch.groups))]
    tensors = [None if each is None else tensor_of(each) for each in ends]
    return [
        each
        if isinstance(each, Segments)
        else HostRows(batch.query_starts, batch.context_lengths, *each, cast(KVCache, memory).scratch, seen)
        for each, memory, seen in zip(batch.groups, batch.memory.groups, tensors, strict=True)
    ]
