"""A chat through pipes: reads lines, and writes only answers to standard output.

There are no prompt marks and no colours; thoughts are left out, and notices go to stderr. It has the same methods as
`Terminal`.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext

from ...console.standard_error import write_line
from .chat_input import ChatInput, read_input
from .conversation import AnswerDelta


class Pipe:
    def __enter__(self) -> "Pipe":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def welcome(self) -> None:
        """Print nothing: a pipe needs no greeting."""

    def read(self) -> ChatInput:
        return read_input(_line)

    def show(self, pieces: Iterator[AnswerDelta]) -> None:
        """Write an answer; Ctrl-C ends the program, as in any pipe."""
        last = ""
        for piece in pieces:
            last = piece.text or last
            sys.stdout.write(piece.text)
            sys.stdout.flush()
        if last and not last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()

    def interruptible(self) -> "nullcontext[None]":
        return nullcontext()

    def say(self, text: str) -> None:
        write_line(f"penstock: {text}" if "\n" not in text else text)

    def remark(self, text: str) -> None:
        self.say(text)


def _line(is_continued: bool) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
