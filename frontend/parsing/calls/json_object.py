"""Finds the end of one JSON object in a text that arrives in pieces and continues after it."""

import json
import re
from typing import Any, NoReturn

from ..growing_text import GrowingText

_PLAIN = re.compile(r'[^"\\]+')  # of a string
_SCALAR = re.compile(r"[-+.\w]+")  # numbers and constants, and more


class JsonObject:
    """Takes in text up to the bracket that closes the first one."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self.is_complete = False
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    @property
    def text(self) -> str:
        return str(self._text)

    @property
    def length(self) -> int:
        return self._text.length

    def feed(self, text: str) -> str:
        """The part of this text that belongs to the object."""
        own = text[: self._end(text)]
        self._text.add(own)
        return own

    def _end(self, text: str) -> int:
        if self.is_complete:
            return 0
        for index, character in enumerate(text):
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
                    return index + 1
        return len(text)


class JsonBeginning:
    """Detects as early as possible that a text is no JSON; other text may or may not become JSON."""

    def __init__(self) -> None:
        self.is_broken = False
        self._open: list[str] = []  # brackets to be closed
        self._expects = "v"  # v: a value, k: a key, c: a colon, n: a comma or a closing bracket
        self._may_close = False  # the previous character was an opening bracket
        self._is_string = self._is_escaped = self._is_scalar = False

    def feed(self, text: str) -> None:
        index = 0
        while index < len(text) and not self.is_broken:
            index = self._in_string(text, index) if self._is_string else self._between_strings(text, index)

    def _in_string(self, text: str, index: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return index + 1
        if (plain := _PLAIN.match(text, index)) is not None:
            return plain.end()
        if text[index] == "\\":
            self._is_escaped = True
        else:
            self._is_string = False
            self._expects = "c" if self._expects == "k" else "n"
        return index + 1

    def _between_strings(self, text: str, index: int) -> int:
        if (scalar := _SCALAR.match(text, index)) is not None:
            # A scalar continued from the previous piece.
            self.is_broken = self._expects != "v" and not self._is_scalar
            self._expects, self._is_scalar, self._may_close = "n", True, False
            return scalar.end()
        self._is_scalar = False
        character = text[index]
        if not character.isspace():
            self._take(character)
        return index + 1

    def _take(self, character: str) -> None:
        may_close, self._may_close = self._may_close, False
        if character == '"' and self._expects in "vk":
            self._is_string = True
        elif character in "{[" and self._expects == "v":
            self._open.append(character)
            self._expects = "k" if character == "{" else "v"
            self._may_close = True
        elif character in "}]" and self._open and (self._expects == "n" or may_close):
            self.is_broken = self._open.pop() + character not in ("{}", "[]")
            self._expects = "n"
        elif character == ":" and self._expects == "c":
            self._expects = "v"
        elif character == "," and self._expects == "n" and self._open:
            self._expects = "k" if self._open[-1] == "{" else "v"
        else:
            self.is_broken = True


def json_value(text: str) -> Any:
    """The value of a JSON text; None if it isn't JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
