"""One group's KV cache: plain tensors for torch's operations and a GPU's kernels, packed bytes for native kernels.

The engine decides which block belongs to which request. Fresh memory is zeroed, so that the unwritten end of a block
holds finite numbers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ...kernels import LayerKV, Scratch
from ...kernels.cpu.kv_memory import KV_FORMATS, plain_keys, plain_values
from ...kernels.cpu.structs import KV_FORMAT, KVMemory
from ...kernels.paged import KV_DTYPES, PagedKV
from .host_memory import fresh_zeros


class KVShape(NamedTuple):
    """The shape of one token's keys and values on this rank."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    has_values: bool = True  # False: a value is the beginning of its key, and only keys are kept

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of a token's key and value over all layers."""
        return self._num_heads * self.head_dim * dtype.itemsize

    def packed_bytes_per_token(self, kind: str) -> int:
        """The same in this packed format, including scales."""
        return self._num_heads * KV_FORMATS[kind].bytes_per_token(self.head_dim)

    @property
    def _num_heads(self) -> int:
        """Heads of keys and values, over all layers."""
        return (1 + self.has_values) * self.num_layers * self.num_kv_heads


class Blocks(ABC):
    """The interface of one group's memory in any layout."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The cache's tensors, each [layers, num_blocks, …]."""

    @abstractmethod
    def of_layer(self, layer: int) -> Any:
        """One layer's part, by its number in the group."""

    @property
    def num_blocks(self) -> int:
        return self.tensors[0].shape[1]

    def copy_blocks(self, sources: Tensor, targets: Tensor) -> None:
        """Copy whole blocks in every layer; no block is both source and target."""
        for tensor in self.tensors:
            tensor[:, targets] = tensor[:, sources]


@dataclass
class KVCache(Blocks):
    """The blocks of all layers; `keys[layer]` and `values[layer]` are views of one allocation each."""

    keys: Tensor  # [layers, num_blocks, num_kv_heads, block_size, head_dim]
    values: Tensor  # the keys themselves, if values are their beginnings
    scratch: Scratch = field(default_factory=Scratch)

    @classmethod
    def allocate(
        cls, shape: KVShape, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device | str
    ) -> "KVCache":
        """Zeros for `num_blocks`; on a CPU the kernel allocates pages on first touch."""
        size = (shape.num_layers, num_blocks, shape.num_kv_heads, block_size, shape.head_dim)
        keys = zeros(size, dtype, device)
        return cls(keys, zeros(size, dtype, device) if shape.has_values else keys)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.keys,) if self.values is self.keys else (self.keys, self.values)

    @property
    def block_size(self) -> int:
        return self.keys.shape[3]

    def of_layer(self, layer: int) -> LayerKV:
        return LayerKV(self.keys[layer], self.values[layer])


@dataclass
class NativeKVCache(Blocks):
    """The blocks of all layers in the layout of a CPU's native kernels; `kind` names a row of KV_FORMATS."""

    kind: str
    block_size: int
    head_dim: int
    keys: Tensor  # uint8 [layers, num_blocks, num_kv_heads, bytes of a block and head]
    values: Tensor  # the keys themselves, in the order of values, if values are their beginnings
    key_scales: Tensor | None  # float16 [layers, num_blocks, num_kv_heads, parts, block_size]
    value_scales: Tensor | None

    @classmethod
    def allocate(cls, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> Self:
        """Zeros for `num_blocks`; the kernel allocates pages on first touch."""
        form = KV_FORMATS[kind]
        blocks = (shape.num_layers, num_blocks, shape.num_kv_heads)
        size = (*blocks, block_size * shape.head_dim * form.bits // 8)
        count = 1 + shape.has_values
        stored = [fresh_zeros(size, torch.uint8) for _ in range(count)]
        scales: list[Tensor | None] = [None] * count
        if form.scale_parts:
            scales = [fresh_zeros((*blocks, form.scale_parts, block_size), torch.float16) for _ in range(count)]
        return cls(kind, block_size, shape.head_dim, stored[0], stored[-1], scales[0], scales[-1])

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        parts: tuple[Tensor | None, ...] = (self.keys, self.key_scales)
        if self.values is not self.keys:
            parts = (self.keys, self.values, self.key_scales, self.value_scales)
        return tuple(tensor for tensor in parts if tensor is not None)

    def stored(self, layer: int, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of these blocks as float32 [blocks, heads, block_size, head_dim]."""
        key_scales = None if self.key_scales is None else self.key_scales[layer, blocks]
        value_scales = None if self.value_scales is None else self.value_scales[layer, blocks]
        values = plain_values(self.values[layer, blocks], value_scales, self.kind, self.head_dim)
        if self.values is self.keys:
            return values, values
        return plain_keys(self.keys[layer, blocks], key_scales, self.kind, self.block_size), values

    def of_layer(self, layer: int) -> KVMemory:
        """One layer's blocks as a struct for kernels; valid as long as this cache."""
        pointers = [
            None if tensor is None else tensor[layer].data_ptr()
            for tensor in (self.keys, self.values, self.key_scales, self.value_scales)
        ]
        number, num_heads = KV_FORMAT[self.kind], self.keys.shape[2]
        return KVMemory(*pointers, number, self.block_size, num_heads, self.head_dim, self.head_dim)


@dataclass
class DeviceKVCache(Blocks):
    """The blocks of all layers in the layout of a GPU's kernels and of attention libraries."""

    parts: tuple[Tensor, ...]  # the parts of `PagedKV`, each [layers, num_blocks, …]
    has_values: bool = True  # False: the keys' parts are also the values'

    @classmethod
    def allocate(
        cls, shape: KVShape, num_blocks: int, block_size: int, kind: str, device: torch.device | str
    ) -> "DeviceKVCache":
        """Zeros for `num_blocks`."""
        heads, count = (shape.num_layers, num_blocks, block_size, shape.num_kv_heads), 1 + shape.has_values
        stored = [zeros((*heads, shape.head_dim), KV_DTYPES[kind], device) for _ in range(count)]
        scales = [zeros(heads, torch.float16, device) for _ in range(count * (kind == "int8"))]
        return cls((*stored, *scales), shape.has_values)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.parts

    @property
    def block_size(self) -> int:
        return self.parts[0].shape[2]

    def of_layer(self, layer: int) -> PagedKV:
        parts = [tensor[layer] for tensor in self.parts]
        return PagedKV(*(parts if self.has_values else (part for part in parts for _ in range(2))))


def zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Zeros on the device; on a CPU the kernel allocates pages on first touch."""
    if torch.device(device).type == "cpu":
        return fresh_zeros(size, dtype)
    return torch.zeros(size, dtype=dtype, device=device)


AnyKVCache = KVCache | NativeKVCache | DeviceKVCache
