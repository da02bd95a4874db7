"""One JSON object in a text that goes on behind it. Knows nothing of calls."""

import json
from typing import Any, NoReturn


class JsonObject:
    """Takes in text up to the bracket that closes its first."""

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


def json_value(text: str) -> Any:
    """Its value; None where it isn't JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
