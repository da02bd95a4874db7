"""How a processor's KV memory keeps keys and values: each format's sizes, and the way back to plain arrays.

All tokens of one block and one head lie together, interleaved as source/kv_layout.hpp shows; a GPU's are plain
(`kernels/paged.py`). Integer formats have float16 scales: [blocks, heads, parts, block_size] with the scale
first and uint4's minimum second. Latents have no uint4, and in int8 a second scale for the key behind each.
"""

from typing import NamedTuple

import numpy

from ..arrays import BFLOAT16, FLOAT16, FLOAT32, Array


class KVFormat(NamedTuple):
    bits: int
    per_unit: int  # numbers that lie together for one lane
    scale_parts: int  # float16 numbers per token and head

    def bytes_per_token(self, head_dim: int) -> int:
        """Bytes of one head's key, or of its value."""
        return head_dim * self.bits // 8 + 2 * self.scale_parts


KV_FORMATS = {
    "fp32": KVFormat(32, 1, 0),
    "fp16": KVFormat(16, 1, 0),
    "bf16": KVFormat(16, 2, 0),
    "int8": KVFormat(8, 4, 1),
    "uint4": KVFormat(4, 8, 2),
}
LATENT_FORMATS = {kind: KV_FORMATS[kind] for kind in ("fp32", "fp16", "bf16")} | {"int8": KVFormat(8, 4, 2)}
_KEY_ZERO = 128


def plain_keys(stored: Array, scales: Array | None, kind: str, block_size: int) -> Array:
    """float32 [blocks, heads, block_size, head_dim] from the bytes [blocks, heads, bytes] of keys."""
    numbers = _numbers(stored, kind)  # [blocks, heads, units of a token × block_size, per unit]
    blocks, heads, _, per_unit = numbers.shape
    by_token = numbers.reshape(blocks, heads, -1, block_size, per_unit).swapaxes(2, 3)
    plain = by_token.reshape(blocks, heads, block_size, -1)
    return _scaled(plain - _KEY_ZERO if kind == "int8" else plain, scales)


def plain_values(stored: Array, scales: Array | None, kind: str, head_dim: int) -> Array:
    """float32 [blocks, heads, block_size, head_dim] from the bytes [blocks, heads, bytes] of values."""
    numbers = _numbers(stored.view(numpy.int8) if kind == "int8" else stored, kind)
    blocks, heads, _, per_unit = numbers.shape
    by_token = numbers.reshape(blocks, heads, -1, head_dim, per_unit).swapaxes(3, 4)
    return _scaled(by_token.reshape(blocks, heads, -1, head_dim), scales)


def _numbers(stored: Array, kind: str) -> Array:
    """The stored numbers as float32 [blocks, heads, units, per unit]."""
    types = {"fp32": FLOAT32, "fp16": FLOAT16, "bf16": BFLOAT16}
    if kind == "uint4":
        quads = stored.reshape(*stored.shape[:2], -1, 4)
        return numpy.concatenate((quads & 15, quads >> 4), -1).astype(FLOAT32)
    numbers = stored.view(types.get(kind, stored.dtype))
    return numbers.reshape(*numbers.shape[:2], -1, KV_FORMATS[kind].per_unit).astype(FLOAT32)


def _scaled(numbers: Array, scales: Array | None) -> Array:
    if scales is None:
        return numbers
    scaled: Array = numbers * scales[:, :, 0, :, None].astype(FLOAT32)
    return scaled + scales[:, :, 1, :, None].astype(FLOAT32) if scales.shape[2] == 2 else scaled


HEAD_DIM_STEP, LARGEST_HEAD_DIM = 16, 512  # kLargestQuery
LARGEST_LATENT = 1024  # with its key; kLargestHead
LARGEST_LATENT_IN_BYTES = 512  # alone, as is its key; kLargestQuery
