"""Reads the list of a GGUF file's tensors: name, shape, type and offset.

A tensor is made of whole blocks within the file, begins at the alignment, and shares no byte with another.
"""

import math
from itertools import pairwise
from typing import Any, NamedTuple

from ...fields.rules import shown
from .checked_bytes import CheckedBytes
from .metadata import name_in
from .refusals import UNSUPPORTED, MalformedError
from .types import BY_NUMBER, GIVEN_UP, GgmlType

ALIGNMENT_KEY = "general.alignment"
MOST_TENSORS = 100_000
MOST_NAME_BYTES = 255  # ggml has 63 at most
_MOST_DIMENSIONS = 4
_DEFAULT_ALIGNMENT, _MOST_ALIGNMENT = 32, 1 << 20
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8


class TensorInfo(NamedTuple):
    name: str
    shape: tuple[int, ...]  # in torch's order: rows first, a row's length last; ggml reverses it
    type: str  # of `types.py`
    offset: int  # within its file
    nbytes: int


def read_tensors(content: CheckedBytes, count: int, metadata: dict[str, Any]) -> tuple[TensorInfo, ...]:
    """Read `count` tensors; their bytes begin after the last entry."""
    if count > MOST_TENSORS:
        raise MalformedError(f"claims to have {count:,} tensors, and no model has more than {MOST_TENSORS:,}")
    content.require_room(count, _LEAST_TENSOR_BYTES, "tensors")
    alignment = _alignment(metadata)
    listed = [_listed(content, alignment) for _ in range(count)]
    begin = -(-content.position // alignment) * alignment
    tensors = tuple(each._replace(offset=begin + each.offset) for each in listed)
    _check_names(tensors)
    _check_places(tensors, content.size)
    return tensors


def _alignment(metadata: dict[str, Any]) -> int:
    found = metadata.get(ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    # A whole number is a power of two if it shares no bit with its predecessor.
    if type(found) is not int or not 0 < found <= _MOST_ALIGNMENT or found & (found - 1):
        raise MalformedError(
            f"has {ALIGNMENT_KEY}={shown(found)}; it must be a power of two, {_MOST_ALIGNMENT:,} at most"
        )
    return found


def _listed(content: CheckedBytes, alignment: int) -> TensorInfo:
    """Read one entry; its offset counts from the start of the tensor data."""
    name = name_in(content, MOST_NAME_BYTES, "tensor")
    num_dimensions = content.u32()
    if num_dimensions > _MOST_DIMENSIONS:
        raise MalformedError(f"gives {shown(name)} {num_dimensions:,} dimensions; {_MOST_DIMENSIONS} are the most")
    shape = tuple(content.u64() for _ in range(num_dimensions))[::-1]
    kind = _type(content.u32(), name)
    offset = content.u64()
    num_elements = math.prod(shape)
    if num_elements == 0:
        raise MalformedError(f"gives {shown(name)} the shape {shown(shape)}, which has no elements")
    if (shape[-1] if shape else 1) % kind.block_elements:
        raise MalformedError(
            f"gives {shown(name)} the shape {shown(shape)} in {kind.name}, of which a row has a multiple of "
            f"{kind.block_elements} elements"
        )
    if offset % alignment:
        raise MalformedError(f"lets {shown(name)} begin at byte {offset:,}, which is no multiple of {alignment:,}")
    return TensorInfo(name, shape, kind.name, offset, kind.nbytes(num_elements))


def _type(number: int, name: str) -> GgmlType:
    if number in BY_NUMBER:
        return BY_NUMBER[number]
    if number in GIVEN_UP:
        raise MalformedError(
            f"has {shown(name)} in {GIVEN_UP[number]}, which llama.cpp itself has given up",
            "Quantize the model anew, or use another file of it.",
        )
    raise MalformedError(f"has {shown(name)} in a type that is not known here (number {number:,})", UNSUPPORTED)


def _check_names(tensors: tuple[TensorInfo, ...]) -> None:
    seen = set[str]()
    for each in tensors:
        if each.name in seen:
            raise MalformedError(f"has the tensor {shown(each.name)} twice")
        seen.add(each.name)


def _check_places(tensors: tuple[TensorInfo, ...], size: int) -> None:
    in_order = sorted(tensors, key=lambda each: each.offset)
    for each in in_order:
        if each.offset + each.nbytes > size:
            raise MalformedError(
                f"ends at byte {size:,}, and its tensor {shown(each.name)} would end at {each.offset + each.nbytes:,}: "
                "it is incomplete"
            )
    for before, after in pairwise(in_order):
        if before.offset + before.nbytes > after.offset:
            raise MalformedError(f"lets its tensors {shown(before.name)} and {shown(after.name)} overlap")
