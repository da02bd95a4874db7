"""Calls whose arguments are a JSON object, told letter by letter as the model writes them.

`HeadedCall` reads a name, told apart by a pattern, and the object behind it. The others read JSON as a whole, such as
`{"name": "f", "arguments": {"a": 1}}`: `JsonCall` between marks, `BareJsonCall` where it must find the end by itself,
`JsonCalls` a list. In that order the name is known as soon as the arguments begin; in any other order the call is told
when it is complete. Know nothing of the marks around them.
"""

import json
import re
from typing import Any

from .json_object import JsonObject, json_value
from .marks import CallPiece, Tools

_NAME = r'"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*'
# Up to where the arguments certainly begin as an object. A model may forget the first bracket.
_HEAD = re.compile(
    r'(?:\{\s*)?(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)?' + _NAME + r'"(?:arguments|parameters)"\s*:\s*(?=\{\s*["}])',
    re.DOTALL,
)
_HEAD_LENGTH = 1024  # characters; in a longer text no head is looked for
_NAME_LENGTH = 256  # likewise, where the head has little but the name
# What is certainly another object than a call: by its first key, or by the one behind the name.
_OTHER = re.compile(
    r'\{\s*(?:[^"\s]|"(?!(?:name|type|id|arguments|parameters|function)")[^"]*"'
    r'|"name"\s*:\s*[^"\s]|' + _NAME + r'(?:[^"\s]|"(?!(?:arguments|parameters)")[^"]*"))',
    re.DOTALL,
)


class HeadedCall:
    """A `CallReader` for a name and an object of arguments. `head` is what stands before the object, with its name."""

    text = ""  # brackets and fences between the object and the closing mark belong to the call

    def __init__(self, tools: Tools, head: re.Pattern[str], head_length: int = _NAME_LENGTH) -> None:
        self.rest = ""
        self._head = head
        self._head_length = head_length
        self._inside = ""  # until the name is known, from the first character that is no white space
        self._arguments: JsonObject | None = None  # once the name is known

    @property
    def is_text(self) -> bool:
        return self._arguments is None and len(self._inside) >= self._head_length

    @property
    def is_told(self) -> bool:
        return self._arguments is not None

    @property
    def is_over(self) -> bool:
        return self._arguments is not None and self._arguments.is_complete

    @property
    def is_whole(self) -> bool:
        is_complete = self._arguments is not None and self._arguments.is_complete
        return is_complete and isinstance(json_value(self._arguments.text), dict)

    def feed(self, text: str) -> list[CallPiece]:
        if self._arguments is not None:
            new = self._more(text)
            return [CallPiece(None, new)] if new else []
        may_have_head = len(self._inside) < self._head_length
        self._inside += text if self._inside else text.lstrip()
        head = self._head.match(self._inside, 0, self._head_length) if may_have_head else None
        name = self._name(head) if head else None
        return [self._begun(name, self._inside[head.end() :])] if name else []

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        return []

    def _name(self, head: re.Match[str]) -> str | None:
        return head["name"]

    def _begun(self, name: str, arguments: str) -> CallPiece:
        self._arguments = JsonObject()
        return CallPiece(name, self._more(arguments))

    def _more(self, text: str) -> str:
        new = self._arguments.feed(text)
        self.rest += text[len(new) :]
        return new


class JsonCall(HeadedCall):
    """One object between two marks."""

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools, _HEAD, _HEAD_LENGTH)

    @property
    def is_text(self) -> bool:
        return self._arguments is None and self._inside[:1] not in ("", "{", '"')

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        """Nothing more of a call that has begun; else the inside as a whole, if it is a call."""
        if self._arguments is not None or (call := _named(json_value(self._inside), {})) is None:
            return []
        return [self._begun(call[0], call[1])]

    def _name(self, head: re.Match[str]) -> str | None:
        return json_value(head["name"])


class BareJsonCall(JsonCall):
    """One object that ends by itself, and that is a call only if it has arguments."""

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._whole = JsonObject()

    @property
    def is_text(self) -> bool:
        if self._arguments is not None:
            return False
        is_long = self._whole.is_complete or len(self._whole.text) >= _HEAD_LENGTH
        return is_long or _OTHER.match(self._whole.text) is not None

    @property
    def is_over(self) -> bool:
        return self._whole.is_complete

    def feed(self, text: str) -> list[CallPiece]:
        own = self._whole.feed(text)
        pieces = super().feed(own)
        if self._arguments is None and self._whole.is_complete and len(self._whole.text) <= _HEAD_LENGTH:
            call = _named(json_value(self._whole.text), None)
            pieces = [self._begun(*call)] if call else []
        self.rest = text[len(own) :] if self.is_told else self._whole.text + text[len(own) :]
        return pieces

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        return []


class JsonCalls:
    """A `CallReader` for a list of objects. What is no call ends it."""

    text = ""

    def __init__(self, tools: Tools) -> None:
        self.rest = ""
        self.is_over = False
        self.is_whole = True
        self._tools = tools
        self._expected = "["  # next, after white space
        self._call: BareJsonCall | None = None  # in progress
        self._has_calls = False

    @property
    def is_text(self) -> bool:
        return self.is_over and not self._has_calls

    def feed(self, text: str) -> list[CallPiece]:
        self.rest += text
        pieces: list[CallPiece] = []
        while not self.is_over and (self._in_object(pieces) if self._call else self._between_objects()):
            pass
        return pieces

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        if self._call is not None:
            self.is_whole = self.is_whole and not self._call.is_told
            self.rest = "" if self._call.is_told else self._call.rest
        return []

    def _between_objects(self) -> bool:
        self.rest = self.rest.lstrip()
        if not self.rest:
            return False
        mark = self.rest[0]
        if mark not in self._expected:
            self.is_over = True
        elif mark == "{":
            self._call = BareJsonCall(self._tools)
        else:
            self.rest, self._expected = self.rest[1:], "{"
            self.is_over = mark == "]"
        return not self.is_over

    def _in_object(self, pieces: list[CallPiece]) -> bool:
        call = self._call
        pieces += call.feed(self.rest)
        self._has_calls = self._has_calls or call.is_told
        self.is_over = call.is_text
        if not call.is_text and not call.is_over:
            self.rest = ""
            return False
        self.rest, self._call, self._expected = call.rest, None, ",]"
        self.is_whole = self.is_whole and (call.is_text or call.is_whole)
        return True


def _named(call: Any, arguments: dict[str, Any] | None) -> tuple[str, str] | None:
    """Name and arguments of a call in any order; `arguments` are those of a call that names none."""
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict):
        return None
    name, found = call.get("name"), call.get("arguments", call.get("parameters", arguments))
    if isinstance(found, str):
        found = json_value(found)
    if not isinstance(name, str) or not name or not isinstance(found, dict):
        return None
    return name, json.dumps(found, ensure_ascii=False)
