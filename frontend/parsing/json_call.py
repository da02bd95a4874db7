"""A call written as one JSON object with a name and arguments: `{"name": "f", "arguments": {"a": 1}}`.

Written in that order, the name is told as soon as the arguments begin, and the arguments as they come, letter by letter
as the model wrote them; in any other order the call is told when it is complete. Knows nothing of the marks around it.
"""

import json
import re

from .answer import CallPiece

# Up to where the arguments certainly begin as an object.
_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\{\s*["}])', re.DOTALL)
_HEAD_LENGTH = 1024  # characters; in a longer text no head is looked for


class JsonCall:
    """A `CallReader`."""

    def __init__(self) -> None:
        self._inside = ""  # until the name is known, from the first character that is no white space
        self._object: _JsonObject | None = None  # the arguments, once the name is known

    @property
    def is_text(self) -> bool:
        return self._object is None and self._inside[:1] not in ("", "{")

    @property
    def is_whole(self) -> bool:
        return self._object is not None and self._object.is_complete and isinstance(_json(self._object.text), dict)

    def feed(self, inside: str) -> CallPiece | None:
        if self._object is not None:
            new = self._object.feed(inside)
            return CallPiece(None, new) if new else None
        may_have_head = len(self._inside) < _HEAD_LENGTH
        self._inside += inside if self._inside else inside.lstrip()
        head = _HEAD.match(self._inside, 0, _HEAD_LENGTH) if may_have_head else None
        name = _json(head[1]) if head else None
        return self._begin(name, self._inside[head.end() :]) if name else None

    def close(self) -> CallPiece | None:
        """Nothing more of a call that has begun; else the inside as a whole, if it is a call."""
        if self._object is not None or not isinstance(call := _json(self._inside), dict):
            return None
        name, arguments = call.get("name"), call.get("arguments", {})
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            return None
        return self._begin(name, json.dumps(arguments, ensure_ascii=False))

    def _begin(self, name: str, arguments: str) -> CallPiece:
        self._object = _JsonObject()
        return CallPiece(name, self._object.feed(arguments))


class _JsonObject:
    """The text of an object that is followed by other things; it ends with the bracket that closes its first."""

    def __init__(self) -> None:
        self.text = ""
        self.is_complete = False
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    def feed(self, text: str) -> str:
        """As much of this text as belongs to the object."""
        own = text[: self._end(text)]
        self.text += own
        return own

    def _end(self, text: str) -> int:
        if self.is_complete:
            return 0
        for place, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif character == '"':
                self._is_string = not self._is_string
            elif self._is_string:
                self._is_escaped = character == "\\"
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.is_complete = True
                    return place + 1
        return len(text)


def _json(text: str) -> object:
    """Its value; None where it isn't JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
