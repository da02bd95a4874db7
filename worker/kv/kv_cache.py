"""One group's KV cache: the interface for every backend, and the layout of a CPU's native kernels.

Torch's operations and a GPU's kernels have layouts of their own (`../backends/torch/tensor_cache.py`). The engine
decides which block belongs to which request. Fresh memory is zeroed, so that the unwritten end of a block holds finite
numbers.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy

from ...kernels.arrays import FLOAT16, Array, DType, fresh_zeros
from ...kernels.cpu.kv_memory import KV_FORMATS, LATENT_FORMATS, KVFormat, plain_keys, plain_values
from ...kernels.cpu.library import struct_of
from ...kernels.cpu.structs import KV_FORMAT, KVMemory
from ...records import dataclass


class KVShape(NamedTuple):
    """The shape of one token's keys and values on this rank."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    has_values: bool = True  # False: a value is the beginning of its key, and only keys are kept

    def bytes_per_token(self, dtype: DType) -> int:
        """Bytes of a token's key and value over all layers."""
        return self._num_heads * self.head_dim * dtype.itemsize

    def packed_bytes_per_token(self, kind: str) -> int:
        """The same in this packed format, including scales."""
        return self._num_heads * self.packed_format(kind).bytes_per_token(self.head_dim)

    def packed_format(self, kind: str) -> KVFormat:
        return (KV_FORMATS if self.has_values else LATENT_FORMATS)[kind]

    @property
    def _num_heads(self) -> int:
        """Heads of keys and values, over all layers."""
        return (1 + self.has_values) * self.num_layers * self.num_kv_heads


class Blocks(ABC):
    """The interface of one group's memory in any layout."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """The cache's arrays or tensors, each [layers, num_blocks, …]."""

    @abstractmethod
    def of_layer(self, layer: int) -> Any:
        """One layer's part, by its number in the group."""

    @property
    def num_layers(self) -> int:
        return self.parts[0].shape[0]

    @property
    def num_blocks(self) -> int:
        return self.parts[0].shape[1]

    def copy_blocks(self, sources: Any, targets: Any) -> None:
        """Copy whole blocks, named by integers on their device, in every layer; none is both source and target."""
        for part in self.parts:
            part[:, targets] = part[:, sources]


@dataclass
class NativeKVCache(Blocks):
    """The blocks of all layers in the layout of a CPU's native kernels; `kind` names a row of KV_FORMATS."""

    kind: str
    block_size: int
    head_dim: int
    keys: Array  # uint8 [layers, num_blocks, num_kv_heads, bytes of a block and head]
    values: Array  # the keys themselves, in the order of values, if values are their beginnings
    key_scales: Array | None  # float16 [layers, num_blocks, num_kv_heads, parts, block_size]
    value_scales: Array | None

    @classmethod
    def allocate(cls, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> Self:
        """Zeros for `num_blocks`; the kernel allocates pages on first touch."""
        form = shape.packed_format(kind)
        blocks = (shape.num_layers, num_blocks, shape.num_kv_heads)
        size = (*blocks, block_size * shape.head_dim * form.bits // 8)
        count = 1 + shape.has_values
        stored = [fresh_zeros(size, numpy.dtype(numpy.uint8)) for _ in range(count)]
        scales: list[Array | None] = [None] * count
        if form.scale_parts:
            scales = [fresh_zeros((*blocks, form.scale_parts, block_size), FLOAT16) for _ in range(count)]
        return cls(kind, block_size, shape.head_dim, stored[0], stored[-1], scales[0], scales[-1])

    @property
    def parts(self) -> tuple[Array, ...]:
        parts: tuple[Array | None, ...] = (self.keys, self.key_scales)
        if self.values is not self.keys:
            parts = (self.keys, self.values, self.key_scales, self.value_scales)
        return tuple(part for part in parts if part is not None)

    def stored(self, layer: int, blocks: Array) -> tuple[Array, Array]:
        """Keys and values of these blocks as float32 [blocks, heads, block_size, head_dim]."""
        key_scales = None if self.key_scales is None else self.key_scales[layer, blocks]
        value_scales = None if self.value_scales is None else self.value_scales[layer, blocks]
        values = plain_values(self.values[layer, blocks], value_scales, self.kind, self.head_dim)
        if self.values is self.keys:
            return values, values
        return plain_keys(self.keys[layer, blocks], key_scales, self.kind, self.block_size), values

    def of_layer(self, layer: int) -> KVMemory:
        """One layer's blocks as a struct for kernels; valid as long as this cache."""
        of_group = (self.keys, self.values, self.key_scales, self.value_scales)
        parts = [None if part is None else part[layer] for part in of_group]
        number, num_heads = KV_FORMAT[self.kind], self.keys.shape[2]
        return struct_of(KVMemory, *parts, number, self.block_size, num_heads, self.head_dim, self.head_dim)
