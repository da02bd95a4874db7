"""Reads calls written as Python: `[weather(city="Paris", days=[1, 2]), clock()]`.

A name is passed on at its bracket, each argument when it is complete, as JSON. Arguments have names and literal values,
including JSON's `true`, `false` and `null`; anything else is no call.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable

from ..growing_text import GrowingText
from ..marks import CallPiece, Tools

# Up to where a call certainly begins: its first argument, or its end.
_HEAD = re.compile(r"(?P<name>[^\W\d][\w.-]*)\s*\(\s*(?=\)|[^\W\d]\w*\s*=[^=])")
_BEGUN_HEAD = re.compile(r"(?:[^\W\d][\w.-]*\s*(?:\(\s*(?:[^\W\d]\w*\s*=?)?)?)?")
_HEAD_LENGTH = 512  # characters
_KEY = re.compile(r"(?P<key>[^\W\d]\w*)\s*=")
_BEGUN_KEY = re.compile(r"(?:[^\W\d]\w*\s*)?")
_CONSTANTS = {"true": True, "false": False, "null": None}


class PythonicCalls:
    """A `CallReader` for a list of calls. Anything but a call ends it."""

    def __init__(self, tools: Tools) -> None:
        self.rest = ""  # not read yet
        self.text = ""  # an argument that turned out to be none
        self.is_over = False
        self._state: Callable[[], bool] = self._in_front
        self._pieces: list[CallPiece] = []
        self._num_calls = 0
        self._num_arguments = 0  # of the call in progress
        self._num_closed = 0
        self._key = ""  # of the argument in progress, as written, with its "="
        self._value = _Value()

    @property
    def is_text(self) -> bool:
        return self.is_over and not self._num_calls

    @property
    def is_whole(self) -> bool:
        return self._num_calls == self._num_closed

    def feed(self, text: str) -> list[CallPiece]:
        self.rest += text
        self._pieces = []
        while not self.is_over and self._state():
            pass
        return self._pieces

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        if not self.is_over:
            self._end_as_text()
        return []

    # --- states --------------------------------------------------------------------------------------------------

    def _in_front(self) -> bool:
        self.rest = self.rest.lstrip()
        if not self.rest:
            return False
        if not self.rest.startswith("["):
            return self._end_as_text()
        return self._go_on(self._in_head, 1)

    def _in_head(self) -> bool:
        self.rest = self.rest.lstrip()
        head = _HEAD.match(self.rest, 0, _HEAD_LENGTH)
        if head is None:
            is_open = len(self.rest) < _HEAD_LENGTH and _BEGUN_HEAD.fullmatch(self.rest) is not None
            return not is_open and self._end_as_text()
        self._pieces.append(CallPiece(head["name"], ""))
        self._num_calls += 1
        self._num_arguments = 0
        return self._go_on(self._in_arguments, head.end())

    def _in_arguments(self) -> bool:
        """Before an argument, or the bracket that ends the arguments."""
        self.rest = self.rest.lstrip()
        if self.rest.startswith(")"):
            return self._end_call()
        key = _KEY.match(self.rest, 0, _HEAD_LENGTH)
        if key is None:
            is_open = len(self.rest) < _HEAD_LENGTH and _BEGUN_KEY.fullmatch(self.rest) is not None
            return not is_open and self._end_as_text()
        self._key, self._value = key[0], _Value()
        return self._go_on(self._in_value, key.end())

    def _in_value(self) -> bool:
        own = self._value.feed(self.rest)
        self.rest = self.rest[len(own) :]
        if not self._value.is_complete:
            return False
        value = self._value.as_json()
        if value is None:
            return self._end_as_text()
        name = json.dumps(self._key[:-1].rstrip(), ensure_ascii=False)
        self._pieces.append(CallPiece(None, f"{', ' if self._num_arguments else '{'}{name}: {value}"))
        self._num_arguments += 1
        self._key = ""
        if self.rest.startswith(")"):
            return self._end_call()
        return self._go_on(self._in_arguments, 1)

    def _behind_call(self) -> bool:
        self.rest = self.rest.lstrip()
        if self.rest.startswith("]"):
            self.is_over = True
            self.rest = self.rest[1:]
            return False
        if not self.rest.startswith(","):
            return bool(self.rest) and self._end_as_text()
        return self._go_on(self._in_head, 1)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _go_on(self, state: Callable[[], bool], read: int) -> bool:
        self._state, self.rest = state, self.rest[read:]
        return True

    def _end_call(self) -> bool:
        self._pieces.append(CallPiece(None, "}" if self._num_arguments else "{}"))
        self._num_closed += 1
        return self._go_on(self._behind_call, 1)

    def _end_as_text(self) -> bool:
        """Treat unread text as text, including an argument that has begun."""
        if self._key:
            self.text = self._key + self._value.text
        self.is_over = True
        return False


class _Value:
    """A literal, up to the comma or bracket that ends it."""

    def __init__(self) -> None:
        self._text = GrowingText()
        self.is_complete = False
        self._depth = 0
        self._quote = ""
        self._is_escaped = False

    @property
    def text(self) -> str:
        return str(self._text)

    def feed(self, text: str) -> str:
        """The part of this text that belongs to the value."""
        own = text[: self._end(text)]
        self._text.add(own)
        return own

    def _end(self, text: str) -> int:
        for index, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._quote:
                self._is_escaped = character == "\\"
                self._quote = "" if character == self._quote else self._quote
            elif character in "\"'":
                self._quote = character
            elif character in "([{":
                self._depth += 1
            elif not self._depth and character in ",)":
                self.is_complete = True
                return index
            elif character in ")]}":
                self._depth -= 1
        return len(text)

    def as_json(self) -> str | None:
        """The value as JSON; None if it isn't a literal, or has no JSON form."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "\d", which Python warns about and reads literally
                tree = ast.parse(self.text.strip(), mode="eval")
            value = ast.literal_eval(_WithConstants().visit(tree))
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None


class _WithConstants(ast.NodeTransformer):
    """Replaces JSON's constants by Python's."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_CONSTANTS[node.id]) if node.id in _CONSTANTS else node
