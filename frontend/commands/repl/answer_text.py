"""Shows an answer on a terminal as it is generated: thoughts are dimmed, lines break between words.

A thought and an answer each begin on a new line. A model's text cannot control the terminal.
"""

import os
import sys

from .conversation import AnswerDelta
from .wrapping import Wrapper

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
_USUAL_COLUMNS = 80
# Control characters as visible symbols (␛ for escape), except line feed and tab.
_PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    **dict.fromkeys((0x7F, *range(0x80, 0xA0)), 0xFFFD),
}


def takes_colours() -> bool:
    """Whether to use colours, according to the environment."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def columns() -> int:
    """The current width of the window."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):
        return _USUAL_COLUMNS


def wrapped(text: str) -> str:
    """Wrap a whole text for the current window."""
    wrapper = Wrapper(columns)
    return wrapper.feed(text) + wrapper.flush()


class AnswerText:
    def __init__(self, is_coloured: bool) -> None:
        self.is_coloured = is_coloured
        self.is_thinking = self.is_answering = False
        self.is_at_start = True  # of a line
        self._wrapper = Wrapper(columns)

    def write(self, piece: AnswerDelta) -> None:
        # Line ends before a thought or an answer belong to the tags around them.
        if thought := piece.thought if self.is_thinking else piece.thought.lstrip("\n"):
            if not self.is_thinking:
                self.end()
                self.is_thinking = True
                thought = thought if self.is_coloured else f"(thinking) {thought}"
            self._write(self._wrapper.feed(_shown(thought)))
        if text := piece.text if self.is_answering else piece.text.lstrip("\n"):
            if not self.is_answering:
                self.end()
                self.is_answering = True
            self._write(self._wrapper.feed(_shown(text)))
        sys.stdout.flush()

    def _write(self, text: str) -> None:
        if text:
            # Reset after every piece, so that no ending leaves the terminal dimmed.
            is_dim = self.is_thinking and self.is_coloured
            sys.stdout.write(f"{DIM}{text}{PLAIN}" if is_dim else text)
            self.is_at_start = text.endswith("\n")

    def end(self) -> None:
        """End a thought or the answer: following text begins on a new line."""
        self._write(self._wrapper.flush())
        if not self.is_at_start:
            sys.stdout.write("\n")
            self.is_at_start = True
        self.is_thinking = self.is_answering = False
        self._wrapper = Wrapper(columns)
        sys.stdout.flush()


def _shown(text: str) -> str:
    return text.translate(_PICTURES)
