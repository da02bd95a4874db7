"""Decodes a body's bytes into its struct, or raises an error that describes the fault.

The time and memory for decoding are estimated first, by counting brackets, commas and quotes outside of strings.
"""

import codecs
import re
from collections.abc import Iterable, Set
from typing import Any, NamedTuple, TypeVar

import msgspec

from ....protocol.fields.decoding_fault import DecodingFault
from ..answers.errors import ApiError
from ..schemas.foreign_fields import OpenBody

Body = TypeVar("Body", bound=msgspec.Struct)

# Levels of free-form values (schemas, template arguments), which later code traverses by recursion.
MOST_LEVELS = 64
# Nothing else runs while a body is decoded: within these bounds it takes a tenth of a second at most.
MOST_CONTAINERS, MOST_STRINGS, MOST_NUMBERS, MOST_LONG_NUMBERS = 2**16, 2**16, 2**20, 2**11
# The error for a longer body shows none of its values, since that would mean decoding it twice.
MOST_SHOWN_BYTES = 2**15
_LONG_NUMBER = 17  # characters

# The most bytes of a value besides its text: a dict with its first entry; an empty list with its first allocation; a
# string; a list's entry with its number; the additional bytes of a dict's entry.
_OBJECT, _LIST, _STRING, _ENTRY, _NAME = 280, 120, 72, 48, 100
# Seconds to decode a byte; a list or object; a number; a number with many digits or an exponent.
_BYTE_SECONDS, _CONTAINER_SECONDS, _ENTRY_SECONDS, _LONG_NUMBER_SECONDS = 6e-9, 1e-6, 1e-7, 2e-5
_DIGITS = bytes.maketrans(b"123456789.+-E", b"000000000000e")
_CONTINUATION = bytes(range(0x80, 0xC0))
_UP_TO_8_BITS, _UP_TO_16_BITS = bytes(range(0xC4)), bytes(range(0xF0))


class Outline(NamedTuple):
    """How many values of each kind a body has, counted without decoding it."""

    objects: int
    lists: int
    strings: int
    entries: int  # of lists and objects beyond the first of each
    names: int
    long_numbers: int
    num_bytes: int
    text_bytes: int  # of all texts, decoded

    @classmethod
    def of(cls, body: bytes | bytearray) -> "Outline":
        """Count them; raises if there are so many strings that even counting would be slow."""
        unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
        if (strings := unescaped.count(b'"') // 2) > MOST_STRINGS:
            raise _too_many()
        pieces = unescaped.split(b'"')
        marks = b" ".join(pieces[::2])
        digits = marks.translate(_DIGITS)
        return cls(
            marks.count(b"{"),
            marks.count(b"["),
            strings,
            marks.count(b","),
            marks.count(b":"),
            digits.count(b"0e") + digits.count(b"0" * _LONG_NUMBER),
            len(body),
            sum(map(_text_bytes, pieces[1::2])),
        )

    def check(self) -> None:
        if (
            self.objects + self.lists > MOST_CONTAINERS
            or self.entries > MOST_NUMBERS
            or self.long_numbers > MOST_LONG_NUMBERS
        ):
            raise _too_many()

    @property
    def decoded_bytes(self) -> int:
        """The most memory of the decoded values; tests compare it with random bodies."""
        return (
            self.text_bytes
            + _OBJECT * self.objects
            + _LIST * self.lists
            + _STRING * self.strings
            + _ENTRY * self.entries
            + _NAME * self.names
        )

    @property
    def seconds(self) -> float:
        """The approximate decoding time."""
        return (
            _BYTE_SECONDS * self.num_bytes
            + _CONTAINER_SECONDS * (self.objects + self.lists)
            + _ENTRY_SECONDS * self.entries
            + _LONG_NUMBER_SECONDS * self.long_numbers
        )


def _text_bytes(text: bytes | bytearray) -> int:
    """Memory of a string: 1, 2 or 4 bytes a character, as its widest one needs, and its UTF-8 form, once cached."""
    escaped = text.count(rb"\u")
    if text.isascii() and not escaped:
        return len(text)
    characters = len(text.translate(None, _CONTINUATION)) - 5 * escaped
    if text.translate(None, _UP_TO_16_BITS) or rb"\ud" in text or rb"\uD" in text:
        width = 4
    else:
        width = 2 if text.translate(None, _UP_TO_8_BITS) or text.count(rb"\u00") < escaped else 1
    return width * characters + len(text)


def _too_many() -> ApiError:
    return ApiError(
        413,
        f"The body holds more than {MOST_CONTAINERS:,} lists and objects, {MOST_STRINGS:,} texts, {MOST_NUMBERS:,} "
        f"numbers, or {MOST_LONG_NUMBERS:,} numbers that have an exponent or {_LONG_NUMBER} digits; send less at once.",
    )


def decoded(body: bytes | bytearray, kind: type[Body]) -> Body:
    try:
        request = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _unfit(error, kind, _plain(body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        sentence = _not_unicode(body) or _half_a_pair(body) or f"The body is not JSON that can be read: {error}."
        raise ApiError(400, sentence) from None
    if isinstance(request, OpenBody):
        try:
            request.note_unread(_set_fields(body, request.open_parts.keys()))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:  # of a name, which the struct's decoder skips
            sentence = _not_unicode(body) or _half_a_pair(body) or f"The body is not JSON that can be read: {error}."
            raise ApiError(400, sentence) from None
    return _shallow(request)


def converted(body: Any, kind: type[Body]) -> Body:
    """The struct of a body that was decoded to plain types, as that of a batch's line is."""
    try:
        request = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _unfit(error, kind, body) from None
    if isinstance(request, OpenBody):
        request.note_unread({name: value for name, value in body.items() if value is not None})
    return _shallow(request)


def _set_fields(body: bytes | bytearray, parts: Set[str]) -> dict[str, Any]:
    """The names of the body's fields that aren't null, and those within `parts`; raw values would keep the body."""
    fields = _without_nulls(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    names: dict[str, Any] = dict.fromkeys(fields, True)
    for name in parts & fields.keys():
        part = msgspec.json.decode(fields[name], type=_PART)
        names[name] = [
            dict.fromkeys(_without_nulls(each), True) for each in (part if isinstance(part, list) else [part])
        ]
    return names


def _without_nulls(values: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    return {name: value for name, value in values.items() if value != _NULL}


def _unfit(error: msgspec.ValidationError, kind: type[Body], given: Any) -> ApiError:
    fault = DecodingFault.of(error, kind, whole="The body", given=given)
    return ApiError(400, fault.sentence + _form_of_tools(fault.field, kind), param=fault.field or None)


def _shallow(request: Body) -> Body:
    for name in request.__struct_fields__:
        if isinstance(value := getattr(request, name), (dict, list)):
            check_levels(name, value)
    return request


def _form_of_tools(field: str, kind: type[Body]) -> str:
    """A hint if a tool is written in the form of another endpoint; empty for other faults."""
    match _TOOL_FIELD.fullmatch(field):
        case None:
            return ""
        case _ if form := getattr(kind, "form_of_tools", ""):
            return f" A tool is {form} here."
        case found if found[1] == "function":
            return ' A tool is {"type": "function", "function": {"name": …, "parameters": {…}}} here.'
        case _:
            return ' A tool is {"type": "function", "name": …, "parameters": {…}} here.'


def _not_unicode(body: bytes | bytearray) -> str:
    """A sentence about the first byte that is not UTF-8, of which the decoder may tell no place; empty if all are."""
    try:
        codecs.utf_8_decode(body)
    except UnicodeDecodeError as error:
        return (
            f"The body is not UTF-8, as JSON has to be: a text in it has the byte 0x{body[error.start]:02x} "
            f"({error.reason}). Encode it as UTF-8."
        )
    return ""


def _half_a_pair(body: bytes | bytearray) -> str:
    """A sentence about half a surrogate pair in the body, which the decoder may report as the body's end; empty if
    there is none. Only the first bytes are searched, since nothing else runs meanwhile."""
    escapes = _ESCAPES.finditer(body, 0, _LOOKED_THROUGH)
    if (half := next((escape for escape in escapes if escape["half"]), None)) is None:
        return ""
    escape, offset = half[0].decode(), half.start()
    return (
        f"The body holds half a surrogate pair, {escape} at byte {offset:,}, which is no character. Cut texts between "
        r"characters, or send \ufffd instead."
    )


def _plain(body: bytes | bytearray) -> Any:
    """The body's values, for an error that shows one of them; None for a long body."""
    if len(body) > MOST_SHOWN_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def check_levels(name: str, value: Any) -> None:
    """Refuse values that are nested too deep. It goes level by level, since recursion itself could overflow."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [part for each in level for part in _nested(each)]
        if not level:
            return
    raise ApiError(400, f"{name}: it is nested more than {MOST_LEVELS} levels deep.", param=name)


def _nested(value: Any) -> Iterable[Any]:
    """The parts of a value that have parts of their own."""
    parts: Any = value
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    # Most long lists contain only numbers or strings; checking the set of types is faster than checking each.
    if any(issubclass(kind, _WITH_PARTS) for kind in set(map(type, parts))):
        return [part for part in parts if isinstance(part, _WITH_PARTS)]
    return ()


_NULL = msgspec.Raw(b"null")
_PART = dict[str, msgspec.Raw] | list[dict[str, msgspec.Raw]]
# A pair is one escape; a group that takes all it can get, and gives nothing back, is wrongly matched by Python 3.11.2.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_LOOKED_THROUGH = 2**18
_WITH_PARTS = (dict, list, msgspec.Struct)
_TOOL_FIELD = re.compile(r"tools\[[^\]]*\]\.(function|name)")
