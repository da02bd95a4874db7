"""Reads a call that is a message to a tool: the recipient's name, a space, and the message's text.

The text is the arguments as a JSON object. A tool that takes a single string, according to its schema or to the model,
may be sent the bare string, such as a program; it is converted to JSON.
"""

import json
import re
from collections.abc import Mapping

from ..growing_text import GrowingText
from ..marks import CallPiece, Tools
from .json_object import JsonObject, json_value

_NAME = re.compile(r"[\w.:/-]{1,256}")


class MessageCall:
    """A `CallReader` for forms with a closing mark."""

    text = ""  # text after the object belongs to the call
    rest = ""
    is_over = False

    def __init__(self, tools: Tools, namespace: str, texts: Mapping[str, str]) -> None:
        """`namespace` precedes the names of the caller's tools; `texts` are the model's own tools that take a
        string."""
        self._tools = tools
        self._namespace = namespace
        self._texts = texts
        self._recipient: str | None = None  # once the space after it has arrived
        self._begun = GrowingText()  # the recipient so far, then white space before the text
        self._arguments: JsonObject | _String | None = None  # once the text has begun
        self.is_text = False
        self.is_whole = False

    def feed(self, text: str) -> list[CallPiece]:
        if self._recipient is None:
            name, space, text = text.partition(" ")
            self._begun.add(name)
            if not space:
                return []
            self._recipient = self._begun.take()
            self.is_text = _NAME.fullmatch(self._name) is None
        if self.is_text or not text:
            return []
        return self._more(self._arguments, text) if self._arguments is not None else self._first(text)

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        """Finish; the answer's end may be the call's: the token that ends both is not part of the text."""
        arguments = self._arguments
        if isinstance(arguments, JsonObject):
            self.is_whole = arguments.is_complete and isinstance(json_value(arguments.text), dict)
        elif arguments is not None:
            self.is_whole = True
            return [CallPiece(None, arguments.ending)]
        elif self._recipient is not None and not self.is_text:
            # Without arguments; or cut off before them, if the tool has some.
            self.is_whole = not is_cut or not self._tools.get(self._name, True)
            return [CallPiece(self._name, "{}" if self.is_whole else "")]
        return []

    @property
    def _name(self) -> str:
        return (self._recipient or "").removeprefix(self._namespace)

    def _first(self, text: str) -> list[CallPiece]:
        """Decide from the text's beginning whether it is an object."""
        key, is_known = self._key()
        begun = text.lstrip()
        if not begun and is_known:
            self._begun.add(text)
            return []
        if begun.startswith("{") and is_known:
            self._arguments, text = JsonObject(), begun
        elif key is not None:
            self._arguments, text = _String(key), self._begun.take() + text
        else:
            self.is_text = True
            return []
        [first] = self._more(self._arguments, text)
        return [CallPiece(self._name, first.arguments)]

    def _key(self) -> tuple[str | None, bool]:
        """The argument for a bare string, if one is possible; and whether the text may be an object."""
        schemas = self._tools.get(self._name)
        if schemas is None and (own := self._texts.get(self._recipient or "")) is not None:
            return own, False
        keys = [key for key, schema in (schemas or {}).items() if _is_string(schema)]
        return (keys[0] if len(keys) == len(schemas or {}) == 1 else None), True

    def _more(self, arguments: "JsonObject | _String", text: str) -> list[CallPiece]:
        new = arguments.feed(text)
        return [CallPiece(None, new)] if new else []


class _String:
    """An object with one string, written as the string arrives."""

    ending = '"}'

    def __init__(self, key: str) -> None:
        self._opening = json.dumps({key: ""}, ensure_ascii=False).removesuffix(self.ending)

    def feed(self, text: str) -> str:
        opening, self._opening = self._opening, ""
        return opening + json.dumps(text, ensure_ascii=False)[1:-1]


def _is_string(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string"
