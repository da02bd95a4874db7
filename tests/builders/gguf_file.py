"""Writes GGUF files for tests, in pure Python: any metadata, tensors from bytes or arrays, and parts of a cut model.

Types of metadata follow from the values (`int` → UINT32, or as wide as it needs; `float` → FLOAT32; `str`, `bool`, and
lists of one type); `Typed` says another one. What is written is as right or as wrong as what was given, so that tests
of readers can ask for files that no program writes.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.protocol.files.gguf.types import BY_NAME

_LETTERS = {"UINT8": "B", "INT8": "b", "UINT16": "H", "INT16": "h", "UINT32": "I", "INT32": "i", "FLOAT32": "f"}
_MORE_LETTERS = {"BOOL": "?", "STRING": "", "ARRAY": "", "UINT64": "Q", "INT64": "q", "FLOAT64": "d"}
# The types of metadata in the order of their numbers, each with its letter in `struct`.
NUMBERS = {name: (number, letter) for number, (name, letter) in enumerate((_LETTERS | _MORE_LETTERS).items())}
_TEXT, _LIST = 8, 9
_FLOATS = {"float32": "F32", "float16": "F16", "float64": "F64", "bfloat16": "BF16"}
_INTEGERS = {"int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64"}


class Typed(NamedTuple):
    """A number, or a list of numbers, of another type than its value suggests."""

    type: str
    value: Any


class Octets(NamedTuple):
    """A tensor: its shape in torch's order, the name of its type, and its bytes."""

    shape: tuple[int, ...]
    type: str
    content: bytes
    offset: int | None = None  # where it says that it begins, if not where it does


def zeros(shape: tuple[int, ...], type: str = "F32") -> Octets:
    """A tensor of zero bytes."""
    return Octets(shape, type, bytes(BY_NAME[type].nbytes(math.prod(shape))))


def tensor_of(array: Any) -> Octets:
    """From an array of numpy's or a tensor of torch's, in its own numbers."""
    shape = tuple(array.shape)
    name = str(array.dtype).removeprefix("torch.")
    if hasattr(array, "detach"):
        array = array.detach().cpu().contiguous()
        array = array.view(array.new_empty(0).short().dtype).numpy() if name == "bfloat16" else array.numpy()
    return Octets(shape, {**_FLOATS, **_INTEGERS}[name], array.tobytes())


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Any] = {}, *, version: int = 3, alignment: int = 32
) -> Path:
    """A file; a tensor is an `Octets`, an array or a torch tensor. `alignment` is said where it isn't the usual one."""
    said = metadata if alignment == 32 else {**metadata, "general.alignment": alignment}
    path.write_bytes(gguf_bytes(list(said.items()), list(tensors.items()), version=version, alignment=alignment))
    return path


def write_parts(folder: Path, name: str, metadata: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> list[Path]:
    """A model cut into parts, the metadata in the first, as `llama-gguf-split` cuts it."""
    num_tensors = sum(map(len, parts))
    files = []
    for number, tensors in enumerate(parts):
        split = {
            "split.no": Typed("UINT16", number),
            "split.count": Typed("UINT16", len(parts)),
            "split.tensors.count": Typed("INT32", num_tensors),
        }
        path = folder / f"{name}-{number + 1:05}-of-{len(parts):05}.gguf"
        files.append(write_gguf(path, {**(metadata if number == 0 else {}), **split}, tensors))
    return files


def gguf_bytes(
    metadata: Sequence[tuple[str, Any]],
    tensors: Sequence[tuple[str, Any]] = (),
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """The content of a file; of pairs, so that a name may come twice."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(each) for key, each in metadata)
    data = b""
    for name, given in tensors:
        each = given if isinstance(given, Octets) else tensor_of(given)
        data += bytes(-len(data) % alignment)
        at = len(data) if each.offset is None else each.offset
        dimensions = struct.pack(f"<I{len(each.shape)}Q", len(each.shape), *reversed(each.shape))
        head += text(name) + dimensions + struct.pack("<IQ", BY_NAME[each.type].number, at)
        data += each.content
    data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data


def text(content: str | bytes) -> bytes:
    encoded = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(encoded)) + encoded


def value(given: Any) -> bytes:
    """A value of metadata, its type before it."""
    if isinstance(given, Typed) and isinstance(given.value, list):
        number, letter = NUMBERS[given.type]
        return struct.pack(f"<IIQ{len(given.value)}{letter}", _LIST, number, len(given.value), *given.value)
    if isinstance(given, Typed):
        number, letter = NUMBERS[given.type]
        return struct.pack(f"<I{letter}", number, given.value)
    if isinstance(given, (str, bytes)):
        return struct.pack("<I", _TEXT) + text(given)
    if isinstance(given, (list, tuple)) and all(isinstance(each, (str, bytes)) for each in given):
        return struct.pack("<IIQ", _LIST, _TEXT, len(given)) + b"".join(map(text, given))
    if isinstance(given, (list, tuple)):
        return value(Typed(_widest(given), list(given)))
    return value(Typed(_type_of(given), given))


def _type_of(number: Any) -> str:
    if isinstance(number, bool):
        return "BOOL"
    if isinstance(number, float):
        return "FLOAT32"
    if number < 0:
        return "INT32" if number >= -(2**31) else "INT64"
    return "UINT32" if number < 2**32 else "UINT64"


def _widest(numbers: Sequence[Any]) -> str:
    """For lists: whole numbers are INT32, as converters write them."""
    types = {_type_of(each) for each in numbers}
    if len(types) == 1 and types <= {"BOOL", "FLOAT32"}:
        return types.pop()
    if types <= {"UINT32", "INT32"} and all(each < 2**31 for each in numbers):
        return "INT32"
    return "FLOAT32" if "FLOAT32" in types else "INT64"
