"""Finds the end of one JSON object in a text that comes in pieces and goes on behind it."""

import json
import re
from typing import Any, NoReturn

from ..growing_text import GrowingText

_PLAIN = re.compile(r'[^"\\]+')  # of a string
_SCALAR = re.compile(r"[-+.\w]+")  # numbers and constants, and more


class JsonObject:
    """Takes in text up to the bracket that closes its first."""

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
        """As much of this text as belongs to the object."""
        own = text[: self._end(text)]
        self._text.add(own)
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


class JsonBeginning:
    """Says as soon as can be that a text is no JSON: what isn't broken may still become some, or not."""

    def __init__(self) -> None:
        self.is_broken = False
        self._open: list[str] = []  # the brackets that wait to be closed
        self._expects = "v"  # v: a value, k: a key, c: a colon, n: a comma or a closing bracket
        self._may_close = False  # the bracket before it was an opening one
        self._is_string = self._is_escaped = self._is_scalar = False

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text) and not self.is_broken:
            place = self._in_string(text, place) if self._is_string else self._between_strings(text, place)

    def _in_string(self, text: str, place: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return place + 1
        if (plain := _PLAIN.match(text, place)) is not None:
            return plain.end()
        if text[place] == "\\":
            self._is_escaped = True
        else:
            self._is_string = False
            self._expects = "c" if self._expects == "k" else "n"
        return place + 1

    def _between_strings(self, text: str, place: int) -> int:
        if (scalar := _SCALAR.match(text, place)) is not None:
            # One that goes on from the piece before is the same.
            self.is_broken = self._expects != "v" and not self._is_scalar
            self._expects, self._is_scalar, self._may_close = "n", True, False
            return scalar.end()
        self._is_scalar = False
        character = text[place]
        if not character.isspace():
            self._take(character)
        return place + 1

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
    """Its value; None where it isn't JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
