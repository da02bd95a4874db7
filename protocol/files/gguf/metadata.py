"""Reads the metadata of a GGUF file: keys with numbers, texts, and lists of either.

Each value states its own type. Keys are unique, lists hold no lists, and all lists together hold no more elements than
the largest vocabularies need.
"""

import struct
from typing import Any

from ...fields.rules import shown
from .checked_bytes import CheckedBytes
from .refusals import MalformedError

MOST_KEYS = 1 << 16
MOST_KEY_BYTES = (1 << 16) - 1
MOST_ELEMENTS = 4_000_000
_BOOLEAN, _TEXT, _LIST = 7, 8, 9
# By their number in the file: their letter in `struct`.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_FORMS = {number: struct.Struct(f"<{letter}") for number, letter in _NUMBERS.items()}
_LEAST_KEY_BYTES = 8 + 4 + 1
_LEAST_TEXT_BYTES = 8


def read_metadata(content: CheckedBytes, count: int) -> dict[str, Any]:
    """Read `count` keys with their values."""
    if count > MOST_KEYS:
        raise MalformedError(f"claims to have {count:,} keys, and no model has more than {MOST_KEYS:,}")
    content.require_room(count, _LEAST_KEY_BYTES, "keys")
    found: dict[str, Any] = {}
    num_elements = 0
    for _ in range(count):
        key = name_in(content, MOST_KEY_BYTES, "key")
        if key in found:
            raise MalformedError(f"has the key {shown(key)} twice")
        try:
            found[key] = _value(content, MOST_ELEMENTS - num_elements)
        except MalformedError as error:
            raise MalformedError(f"{error} (at the key {shown(key)})", error.advice) from None
        if isinstance(found[key], list):
            num_elements += len(found[key])
    return found


def name_in(content: CheckedBytes, most_bytes: int, what: str) -> str:
    """A short name in UTF-8 of visible characters, safe to put into messages."""
    length = content.u64()
    if not 0 < length <= most_bytes:
        raise MalformedError(f"has the name of a {what} with {length:,} bytes; it must have 1 to {most_bytes:,}")
    try:
        name = content.take(length).decode()
    except UnicodeDecodeError:
        raise MalformedError(f"has the name of a {what} that is not UTF-8") from None
    if not name.isprintable():
        raise MalformedError(f"has {shown(name)} as the name of a {what}, with characters that can't be printed")
    return name


def _value(content: CheckedBytes, most_elements: int) -> Any:
    kind = content.u32()
    return _list(content, most_elements) if kind == _LIST else _single(content, kind)


def _single(content: CheckedBytes, kind: int) -> Any:
    if kind == _TEXT:
        return content.text()
    if kind == _BOOLEAN:
        return _boolean(content.take(1)[0])
    if kind in _FORMS:
        return content.number(_FORMS[kind])
    raise MalformedError(f"has a value of the unknown type {kind}")


def _list(content: CheckedBytes, most_elements: int) -> list[Any]:
    kind, count = content.u32(), content.u64()
    if count > most_elements:
        raise MalformedError(f"has more than {MOST_ELEMENTS:,} elements in its lists, which no model has")
    if kind == _TEXT:
        content.require_room(count, _LEAST_TEXT_BYTES, "texts in a list")
        return content.texts(count)
    if kind == _BOOLEAN:
        return [_boolean(each) for each in content.take(count)]
    if kind in _NUMBERS:
        return content.numbers(count, _NUMBERS[kind])
    if kind == _LIST:
        raise MalformedError("has a list of lists, which no model has")
    raise MalformedError(f"has a list of the unknown type {kind}")


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise MalformedError(f"has {octet} where true (1) or false (0) belongs")
    return octet == 1
