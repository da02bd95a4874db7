"""The memory of keys and values: per layer [num_blocks, num_kv_heads, block_size, head_dim].

Which block belongs to whom is the engine's business. Fresh memory is zeros, so that the unwritten end of a block
holds numbers. Knows nothing of requests or attention.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels import LayerKV, Scratch
from .host_memory import fresh_zeros


class KVShape(NamedTuple):
    """What one token keeps on this rank."""

    num_layers: int
    num_kv_heads: int
    head_dim: int

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of its key and value over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize


@dataclass
class KVCache:
    """The blocks of all layers; `keys[layer]` and `values[layer]` are views of one allocation each."""

    keys: Tensor  # [layers, num_blocks, num_kv_heads, block_size, head_dim]
    values: Tensor
    scratch: Scratch = field(default_factory=Scratch)

    @classmethod
    def allocate(
        cls, shape: KVShape, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device | str
    ) -> "KVCache":
        """Zeros for `num_blocks`; on a CPU the kernel hands out the pages as they are touched."""
        size = (shape.num_layers, num_blocks, shape.num_kv_heads, block_size, shape.head_dim)
        if torch.device(device).type == "cpu":
            return cls(fresh_zeros(size, dtype), fresh_zeros(size, dtype))
        return cls(torch.zeros(size, dtype=dtype, device=device), torch.zeros(size, dtype=dtype, device=device))

    @property
    def num_blocks(self) -> int:
        return self.keys.shape[1]

    @property
    def block_size(self) -> int:
        return self.keys.shape[3]

    def of_layer(self, layer: int) -> LayerKV:
        return LayerKV(self.keys[layer], self.values[layer])

    def copy_blocks(self, sources: Tensor, targets: Tensor) -> None:
        """Copy whole blocks in every layer; no block is both source and target."""
        self.keys[:, targets] = self.keys[:, sources]
        self.values[:, targets] = self.values[:, sources]
