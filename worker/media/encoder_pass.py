"""Computes an encoder's stages for one medium at a time: the interface of all backends."""

from abc import ABC, abstractmethod

import numpy

from ...kernels.arrays import DeviceArray, DType
from ..device import Device
from .arrangement import Arrangement
from .encoder import Encoder
from .layout_rows import LayoutRows, layout_rows
from .positions import PatchRotation, TableEntries


class EncoderPass(ABC):
    """The memory of a medium that is being encoded, and its stages for some of its patches."""

    stream: DeviceArray  # [P, hidden]: after the latest stage
    queries: DeviceArray  # [P, heads × head_dim], of a layer in progress
    _layouts: list[LayoutRows]

    def __init__(self, encoder: Encoder, device: Device, dtype: DType) -> None:
        """`dtype`: of the stream."""
        self.encoder = encoder
        self.device = device
        self._dtype = dtype
        self.end()

    def begin(self, arrangement: Arrangement, rotation: PatchRotation | None) -> None:
        config, num_patches = self.encoder.config, arrangement.num_patches
        self.stream = self.device.zeros((num_patches, config.hidden_size), self._dtype)
        self.queries = self.device.zeros((num_patches, config.num_heads * config.padded_head_dim), self._dtype)
        self._layouts = [layout_rows(lengths) for lengths in arrangement.layouts]
        self._rotate_by(rotation)
        self._make_room(max(layout.num_blocks for layout in self._layouts))

    def end(self) -> None:
        """Release the medium's memory."""
        self.stream = self.queries = numpy.empty((0, 0))
        self._layouts = []
        self._rotate_by(None)

    def embed(self, first: int, patches: DeviceArray, entries: TableEntries | None) -> None:
        """Make the stream of patches [P, patch_numbers], beginning at this patch."""
        part = self.stream[first : first + len(patches)]
        part[:] = self._embedded(patches)
        if entries is not None:
            part += _summed(self.encoder.table, *map(self.device.put, entries))

    def project(self, layer: int, first: int, end: int) -> None:
        """Make queries, keys and values of these patches."""
        self.queries[first:end] = self._projected(layer, first, end)

    def attend(self, layer: int, first: int, end: int) -> None:
        """Take these patches' stream through the rest of the layer, once all are projected."""
        self.stream[first:end] = self._attended(layer, first, end)

    @abstractmethod
    def merged(self, part: int, x: DeviceArray, row_frames: int) -> DeviceArray:
        """Merge the stream of patches, [P, hidden], row by row, into [rows, out]."""

    @abstractmethod
    def _rotate_by(self, rotation: PatchRotation | None) -> None:
        """Take the rotation of all patches' queries and keys."""

    @abstractmethod
    def _make_room(self, num_blocks: int) -> None:
        """Allocate memory for keys and values."""

    @abstractmethod
    def _embedded(self, patches: DeviceArray) -> DeviceArray: ...

    @abstractmethod
    def _projected(self, layer: int, first: int, end: int) -> DeviceArray: ...

    @abstractmethod
    def _attended(self, layer: int, first: int, end: int) -> DeviceArray: ...


def _summed(table: DeviceArray, indices: DeviceArray, shares: DeviceArray) -> DeviceArray:
    """[P, hidden]: the shares of the table's entries."""
    found = table[indices[:, 0]] * shares[:, :1]
    for entry in range(1, indices.shape[1]):
        found += table[indices[:, entry]] * shares[:, entry, None]
    return found
