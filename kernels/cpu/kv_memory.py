"""How a processor's KV memory keeps keys and values: each format's sizes, and the way back to plain tensors.

All tokens of one block and one head lie together, interleaved as source/kv_layout.hpp shows; a GPU's are plain
(`kernels/paged.py`). Integer formats have float16 scales: [blocks, heads, parts, block_size] with the scale
first and uint4's minimum second.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class KVFormat(NamedTuple):
    bits: int
    per_unit: int  # numbers that lie together for one lane
    scale_parts: int  # float16 numbers per token and head

    def bytes_per_token(self, head_dim: int) -> int:
        """Of one head's key, or value."""
        return head_dim * self.bits // 8 + 2 * self.scale_parts


KV_FORMATS = {
    "fp32": KVFormat(32, 1, 0),
    "fp16": KVFormat(16, 1, 0),
    "bf16": KVFormat(16, 2, 0),
    "int8": KVFormat(8, 4, 1),
    "uint4": KVFormat(4, 8, 2),
}
_KEY_ZERO = 128


def plain_keys(stored: Tensor, scales: Tensor | None, kind: str, block_size: int) -> Tensor:
    """float32 [blocks, heads, block_size, head_dim] from the bytes [blocks, heads, bytes] of keys."""
    numbers = _numbers(stored, kind)  # [blocks, heads, units of a token × block_size, per unit]
    by_token = numbers.unflatten(2, (-1, block_size)).transpose(2, 3).flatten(3)
    return _scaled(by_token - _KEY_ZERO if kind == "int8" else by_token, scales)


def plain_values(stored: Tensor, scales: Tensor | None, kind: str, head_dim: int) -> Tensor:
    """float32 [blocks, heads, block_size, head_dim] from the bytes [blocks, heads, bytes] of values."""
    numbers = _numbers(stored.view(torch.int8) if kind == "int8" else stored, kind)
    by_token = numbers.unflatten(2, (-1, head_dim)).transpose(3, 4).flatten(2, 3)
    return _scaled(by_token, scales)


def _numbers(stored: Tensor, kind: str) -> Tensor:
    """The stored numbers as float32 [blocks, heads, units, per unit]."""
    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    if kind == "uint4":
        quads = stored.unflatten(2, (-1, 4))
        return torch.cat((quads & 15, quads >> 4), -1).float()
    return stored.view(types.get(kind, stored.dtype)).unflatten(2, (-1, KV_FORMATS[kind].per_unit)).float()


def _scaled(numbers: Tensor, scales: Tensor | None) -> Tensor:
    if scales is None:
        return numbers
    scaled = numbers * scales[:, :, 0, :, None].float()
    return scaled + scales[:, :, 1, :, None].float() if scales.shape[2] == 2 else scaled


HEAD_DIM_STEP, LARGEST_HEAD_DIM = 16, 512  # kLargestQuery
LARGEST_LATENT = 1024  # with its key; kLargestHead
