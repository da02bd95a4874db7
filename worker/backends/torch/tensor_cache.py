"""KV caches in tensors: plain ones for torch's operations, and those of a GPU's kernels."""

from dataclasses import field

import torch
from torch import Tensor

from ....kernels import LayerKV, Scratch
from ....kernels.arrays import FLOAT16, DType
from ....kernels.paged import KV_DTYPES, PagedKV
from ....records import dataclass
from ...kv.kv_cache import Blocks, KVShape
from .device import TensorDevice


@dataclass
class KVCache(Blocks):
    """The blocks of all layers; `keys[layer]` and `values[layer]` are views of one allocation each."""

    keys: Tensor  # [layers, num_blocks, num_kv_heads, block_size, head_dim]
    values: Tensor  # the keys themselves, if values are their beginnings
    scratch: Scratch = field(default_factory=Scratch)

    @classmethod
    def allocate(
        cls, shape: KVShape, num_blocks: int, block_size: int, dtype: DType, device: torch.device | str
    ) -> "KVCache":
        """Zeros for `num_blocks`; on a CPU the kernel allocates pages on first touch."""
        size = (shape.num_layers, num_blocks, shape.num_kv_heads, block_size, shape.head_dim)
        zeros = TensorDevice(torch.device(device)).zeros
        keys = zeros(size, dtype)
        return cls(keys, zeros(size, dtype) if shape.has_values else keys)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return (self.keys,) if self.values is self.keys else (self.keys, self.values)

    @property
    def block_size(self) -> int:
        return self.keys.shape[3]

    def of_layer(self, layer: int) -> LayerKV:
        return LayerKV(self.keys[layer], self.values[layer])


@dataclass
class DeviceKVCache(Blocks):
    """The blocks of all layers in the layout of a GPU's kernels and of attention libraries."""

    paged: tuple[Tensor, ...]  # the parts of `PagedKV`, each [layers, num_blocks, …]
    has_values: bool = True  # False: the keys' parts are also the values'

    @classmethod
    def allocate(
        cls, shape: KVShape, num_blocks: int, block_size: int, kind: str, device: torch.device | str
    ) -> "DeviceKVCache":
        """Zeros for `num_blocks`."""
        heads, count = (shape.num_layers, num_blocks, block_size, shape.num_kv_heads), 1 + shape.has_values
        zeros = TensorDevice(torch.device(device)).zeros
        stored = [zeros((*heads, shape.head_dim), KV_DTYPES[kind]) for _ in range(count)]
        scales = [zeros(heads, FLOAT16) for _ in range(count * (kind == "int8"))]
        return cls((*stored, *scales), shape.has_values)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.paged

    @property
    def block_size(self) -> int:
        return self.paged[0].shape[2]

    def of_layer(self, layer: int) -> PagedKV:
        parts = [tensor[layer] for tensor in self.paged]
        return PagedKV(*(parts if self.has_values else (part for part in parts for _ in range(2))))
