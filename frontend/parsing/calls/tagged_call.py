"""Reads calls whose arguments are enclosed in tags: `<function=f><parameter=city>Paris</parameter></function>`.

They are passed on as JSON. The tool's schema gives a value's type: text is passed on as it arrives, anything else when
it is complete; an argument without a schema is text.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..growing_text import GrowingText, beginning, search
from ..marks import CallPiece, Tags, Tools
from .json_object import json_value

_NAME = re.compile(r"[\w.:/-]{1,256}")
_BEGUN_NAME = re.compile(r"[\w.:/-]*\s*")
_LONGEST_NAME = 256
_DEEPEST = 16  # nested alternatives of a parameter's schema
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}


class TaggedCall:
    """A `CallReader` for forms with a closing mark."""

    rest = ""

    def __init__(self, tools: Tools, tags: Tags) -> None:
        self._text = GrowingText()  # text between two arguments that belongs to none
        self._key = GrowingText()  # in progress
        self._tools = tools
        self._tags = tags
        self._unread = ""
        self._is_complete = False  # nothing will follow
        self._is_cut = False
        self._state: Callable[[], bool] = self._in_name
        self._pieces: list[CallPiece] = []
        self._name: str | None = None
        self._is_broken = False
        self._is_closed = False
        self._num_arguments = 0
        self._schemas: Mapping[str, Any] = {}
        self._value: _Text | _Other = _Other(())

    @property
    def text(self) -> str:
        return str(self._text)

    @property
    def is_text(self) -> bool:
        return self._name is None and (self._is_broken or len(self._unread) > _LONGEST_NAME)

    @property
    def is_over(self) -> bool:
        return self._is_closed

    @property
    def is_whole(self) -> bool:
        return self._is_closed and not self._is_broken

    def feed(self, text: str) -> list[CallPiece]:
        self._unread += text
        self._pieces = []
        while self._state():
            pass
        return self._pieces

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        self._is_complete, self._is_cut = True, is_cut
        pieces = self.feed("")
        is_in_value = self._state in (self._in_value, self._before_value)
        if is_in_value:
            self._tell(self._value.unfinished if is_cut else self._value.ending())
        if self._name is not None and not is_cut:
            self._tell("{}" if not self._num_arguments else "}")
            self._is_closed = True
        return pieces

    # --- states --------------------------------------------------------------------------------------------------

    def _in_name(self) -> bool:
        """Read up to the name's end; if that is a line break, the first argument's mark also ends it."""
        self._unread = self._unread.lstrip()
        name, mark = self._read_up_to((self._tags.name_end, self._tags.key_opening))
        if not mark and not self._is_complete and _BEGUN_NAME.fullmatch(name):
            self._unread = name + self._unread  # passed on whole
            return False
        name = name.strip()
        is_cut = not mark and (self._is_cut or bool(self._tags.name_end.strip()))
        if is_cut or not _NAME.fullmatch(name):
            self._is_broken = True
            return self._go_on(self._in_nothing)
        self._name, self._schemas = name, self._tools.get(name, {})
        self._pieces.append(CallPiece(name, ""))
        return self._go_on(self._in_key if mark == self._tags.key_opening else self._between)

    def _between(self) -> bool:
        other, mark = self._read_up_to((self._tags.key_opening,))
        self._text.add(other if self._text else other.lstrip())
        return bool(mark) and self._go_on(self._in_key)

    def _in_key(self) -> bool:
        new, mark = self._read_up_to((self._tags.key_closing,))
        self._key.add(new)
        if not mark and not self._is_complete:
            return False
        key = self._key.take()
        if not mark:
            self._is_broken = True
            self._text.add(self._tags.key_opening + key)
            return self._go_on(self._in_nothing)
        schema = self._schemas.get(key := key.strip(), {"type": "string"})
        types = value_types(schema)
        self._value = _Text() if types == ("string",) else _Other(types)
        self._tell(("{" if not self._num_arguments else ", ") + json.dumps(key, ensure_ascii=False) + ": ")
        self._num_arguments += 1
        return self._go_on(self._before_value if self._tags.value_opening else self._in_value)

    def _before_value(self) -> bool:
        self._unread = self._unread.lstrip()
        mark = beginning((self._tags.value_opening,), self._unread, is_complete=self._is_complete)
        if mark is None:
            return False
        self._unread = self._unread.removeprefix(mark)
        return self._go_on(self._in_value)

    def _in_value(self) -> bool:
        """Read a value. A model may forget to close it before the next argument."""
        value, mark = self._read_up_to((self._tags.value_closing, self._tags.key_opening))
        self._tell(self._value.feed(value))
        if not mark:
            return False
        self._tell(self._value.ending())
        return self._go_on(self._in_key if mark == self._tags.key_opening else self._between)

    def _in_nothing(self) -> bool:
        return False

    # --- steps ---------------------------------------------------------------------------------------------------

    def _go_on(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _read_up_to(self, marks: tuple[str, ...]) -> tuple[str, str]:
        start, end = search(marks).first(self._unread, is_complete=self._is_complete)
        before, mark = self._unread[:start], self._unread[start:end]
        self._unread = self._unread[end:]
        return before, mark

    def _tell(self, arguments: str) -> None:
        if arguments:
            self._pieces.append(CallPiece(None, arguments))


class _Text:
    """A value that is text, without the line breaks that its marks put around it."""

    unfinished = ""  # text not passed on yet when the answer ends

    def __init__(self) -> None:
        self._has_begun = False
        self._is_first = True
        self._held = ""

    def feed(self, text: str) -> str:
        if not text:
            return ""
        if self._is_first:
            text, self._is_first = text.removeprefix("\n"), False
        text = self._held + text
        body = text.removesuffix("\n")
        self._held = text[len(body) :]
        return self._opening() + json.dumps(body, ensure_ascii=False)[1:-1]

    def ending(self) -> str:
        return self._opening() + '"'

    def _opening(self) -> str:
        has_begun, self._has_begun = self._has_begun, True
        return "" if has_begun else '"'


class _Other:
    """A value that is passed on when it is complete; as text if the schema doesn't allow it."""

    def __init__(self, types: tuple[str, ...]) -> None:
        self._types = types
        self._text = GrowingText()

    @property
    def unfinished(self) -> str:
        return str(self._text)

    def feed(self, text: str) -> str:
        self._text.add(text)
        return ""

    def ending(self) -> str:
        text = self.unfinished.removeprefix("\n").removesuffix("\n")
        written = _CONSTANTS.get(text.strip(), text.strip())
        value = json_value(written)
        is_text = isinstance(value, str) and "string" in self._types
        if written == "null" or (value is not None and not is_text):
            return written
        return json.dumps(text, ensure_ascii=False)


def value_types(schema: Any, depth: int = 0) -> tuple[str, ...]:
    """The JSON types that a schema allows; empty if it has none."""
    if not isinstance(schema, Mapping):
        return ()
    found = [one for one in _listed(schema.get("type")) if isinstance(one, str)]
    if depth < _DEEPEST:
        for key in ("anyOf", "oneOf"):
            found += [one for part in _listed(schema.get(key)) for one in value_types(part, depth + 1)]
    if not found and (values := _listed(schema.get("enum"))):
        found = ["string"] if all(isinstance(value, str) for value in values) else []
    return tuple(dict.fromkeys(found))


def _listed(value: Any) -> list[Any]:
    """A list from a client's schema, which may have anything anywhere."""
    return value if isinstance(value, list) else [] if value is None else [value]
