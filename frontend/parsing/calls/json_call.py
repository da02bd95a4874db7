"""Reads calls whose arguments are a JSON object, and passes the arguments on as the model writes them.

`HeadedCall` reads a name, recognized by a pattern, and the object after it. The others read JSON as a whole, such as
`{"name": "f", "arguments": {"a": 1}}`: `JsonCall` between marks, `BareJsonCall` without a closing mark, `JsonCalls` a
list. With the keys in that order, the name is known as soon as the arguments begin; otherwise the call is passed on
when it is complete.
"""

import json
import re
from typing import Any

from ..growing_text import GrowingText
from ..marks import CallPiece, Tools
from .json_object import JsonBeginning, JsonObject, json_value

_NAME = r'"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*'
# Up to where the arguments certainly begin as an object. A model may forget the first bracket.
_HEAD = re.compile(
    r'(?:\{\s*)?(?:"(?:type|id)"\s*:\s*"[^"\\]*"\s*,\s*)?' + _NAME + r'"(?:arguments|parameters)"\s*:\s*(?=\{\s*["}])',
    re.DOTALL,
)
_HEAD_LENGTH = 1024  # characters; beyond this, no head is looked for
_NAME_LENGTH = 256  # likewise, if the head has little but the name
_HEAD_ENDS = re.compile('["{}]')  # a head can only be decided at one of these
# Certainly not a call: an object with another first key, or another key after the name.
_OTHER = re.compile(
    r'\{\s*(?:[^"\s]|"(?!(?:name|type|id|arguments|parameters|function)")[^"]*"'
    r'|"name"\s*:\s*[^"\s]|' + _NAME + r'(?:[^"\s]|"(?!(?:arguments|parameters)")[^"]*"))',
    re.DOTALL,
)


class HeadedCall:
    """A `CallReader` for a name and an object of arguments. `head` matches the text before the object, including its
    name."""

    text = ""  # brackets and fences between the object and the closing mark belong to the call

    def __init__(self, tools: Tools, head: re.Pattern[str], head_length: int = _NAME_LENGTH) -> None:
        self._rest = GrowingText()
        self._head = head
        self._head_length = head_length
        self._inside = GrowingText()  # until the name is known, from the first character that isn't white space
        self._arguments: JsonObject | None = None  # once the name is known

    @property
    def rest(self) -> str:
        return str(self._rest)

    @property
    def is_text(self) -> bool:
        return self._arguments is None and self._inside.length >= self._head_length

    @property
    def is_told(self) -> bool:
        return self._arguments is not None

    @property
    def is_over(self) -> bool:
        return self._arguments is not None and self._arguments.is_complete

    @property
    def is_whole(self) -> bool:
        arguments = self._arguments
        return arguments is not None and arguments.is_complete and isinstance(json_value(arguments.text), dict)

    def feed(self, text: str) -> list[CallPiece]:
        if self._arguments is not None:
            new = self._more(self._arguments, text)
            return [CallPiece(None, new)] if new else []
        may_have_head = self._inside.length < self._head_length and _HEAD_ENDS.search(text) is not None
        self._inside.add(text if self._inside else text.lstrip())
        head = self._head.match(str(self._inside), 0, self._head_length) if may_have_head else None
        if head is None or not (name := self._name(head)):
            return []
        return [self._begun(name, str(self._inside)[head.end() :])]

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        return []

    def _name(self, head: re.Match[str]) -> str:
        return head["name"]

    def _begun(self, name: str, arguments: str) -> CallPiece:
        self._arguments = JsonObject()
        return CallPiece(name, self._more(self._arguments, arguments))

    def _more(self, arguments: JsonObject, text: str) -> str:
        new = arguments.feed(text)
        self._rest.add(text[len(new) :])
        return new


class JsonCall(HeadedCall):
    """One object between two marks."""

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools, _HEAD, _HEAD_LENGTH)
        self._beginning = JsonBeginning()

    @property
    def is_text(self) -> bool:
        return self._arguments is None and self._beginning.is_broken

    def feed(self, text: str) -> list[CallPiece]:
        """Read more. A text that turns out to be no JSON is no call: otherwise each of many marks would be read to
        the end."""
        if self._arguments is None:
            begun = text if self._inside else text.lstrip()
            if begun and not self._inside:
                # Without its first bracket it begins with the name.
                self._beginning.feed("{" if begun[0] == '"' else "")
                self._beginning.is_broken |= begun[0] not in '{"'
            self._beginning.feed(begun)
        return super().feed(text)

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        """Finish: nothing more for a call that has begun; otherwise parse the inside as a whole, if it is a call."""
        if self._arguments is not None or (call := _named(json_value(str(self._inside)), {})) is None:
            return []
        return [self._begun(call[0], call[1])]

    def _name(self, head: re.Match[str]) -> str:
        name = json_value(head["name"])  # None if a control character spoils it
        return name if isinstance(name, str) else ""


class BareJsonCall(JsonCall):
    """One object that ends by itself, and that is a call only if it has arguments."""

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools)
        self._whole = JsonObject()
        self._behind = ""

    @property
    def rest(self) -> str:
        return self._behind if self.is_told else self._whole.text + self._behind

    @property
    def is_text(self) -> bool:
        if self._arguments is not None:
            return False
        if self._beginning.is_broken or self._whole.is_complete or self._whole.length >= _HEAD_LENGTH:
            return True
        return _OTHER.match(self._whole.text) is not None

    @property
    def is_over(self) -> bool:
        return self._whole.is_complete

    def feed(self, text: str) -> list[CallPiece]:
        own = self._whole.feed(text)
        pieces = super().feed(own)
        if self._arguments is None and self._whole.is_complete and self._whole.length <= _HEAD_LENGTH:
            call = _named(json_value(self._whole.text), None)
            pieces = [self._begun(*call)] if call else []
        self._behind = text[len(own) :]
        return pieces

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        return []


class JsonCalls:
    """A `CallReader` for a list of objects. Anything but a call ends it."""

    text = ""

    def __init__(self, tools: Tools) -> None:
        self.is_over = False
        self.is_whole = True
        self._unread = ""
        self._behind = GrowingText()  # text after the last call
        self._tools = tools
        self._expected = "["  # the next character, after white space
        self._call: BareJsonCall | None = None  # in progress
        self._has_calls = False

    @property
    def is_text(self) -> bool:
        return self.is_over and not self._has_calls

    @property
    def rest(self) -> str:
        return self._unread + str(self._behind)

    def feed(self, text: str) -> list[CallPiece]:
        if self.is_over:
            self._behind.add(text)
            return []
        self._unread += text
        pieces: list[CallPiece] = []
        while not self.is_over and (self._in_object(self._call, pieces) if self._call else self._between_objects()):
            pass
        return pieces

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        if self._call is not None:
            self.is_whole = self.is_whole and not self._call.is_told
            self._unread = "" if self._call.is_told else self._call.rest
        return []

    def _between_objects(self) -> bool:
        self._unread = self._unread.lstrip()
        if not self._unread:
            return False
        mark = self._unread[0]
        if mark not in self._expected:
            self.is_over = True
        elif mark == "{":
            self._call = BareJsonCall(self._tools)
        else:
            self._unread, self._expected = self._unread[1:], "{"
            self.is_over = mark == "]"
        return not self.is_over

    def _in_object(self, call: BareJsonCall, pieces: list[CallPiece]) -> bool:
        pieces += call.feed(self._unread)
        self._has_calls = self._has_calls or call.is_told
        self.is_over = call.is_text
        if not call.is_text and not call.is_over:
            self._unread = ""
            return False
        self._unread, self._call, self._expected = call.rest, None, ",]"
        self.is_whole = self.is_whole and (call.is_text or call.is_whole)
        return True


def _named(call: Any, arguments: dict[str, Any] | None) -> tuple[str, str] | None:
    """Name and arguments of a call in any order; `arguments` are those of a call without a name."""
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
