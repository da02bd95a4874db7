"""The base of all messages: structs sent as arrays and distinguished by class name; and their packed columns.

A column holds numbers of one width in native byte order, since one machine reads it.
"""

from array import array
from collections.abc import Iterable

import msgspec

TOKEN_BYTES = 4  # of a token's id in a column


class Message(msgspec.Struct, array_like=True, tag=True, gc=False):
    """Base of everything that is sent on its own."""


class Part(msgspec.Struct, array_like=True, gc=False):
    """Base of everything that is sent inside a message."""


def column(values: Iterable[int]) -> bytes:
    """Pack int32 values."""
    return array("i", values).tobytes()


def wide_column(values: Iterable[int]) -> bytes:
    """Pack int64 values."""
    return array("q", values).tobytes()


def values(packed: bytes) -> "array[int]":
    return array("i", packed)


def float_values(packed: bytes) -> "array[float]":
    return array("f", packed)


def wide_values(packed: bytes) -> "array[int]":
    return array("q", packed)


def mask_bytes(vocab_size: int) -> int:
    """The size of a mask with a bit for each token, in whole int32 words."""
    return -(-vocab_size // 32) * 4
