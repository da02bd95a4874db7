'''Combines lines into messages: a backslash at a line's end continues it, and a block is enclosed by """.

A line may contain line ends if a terminal pasted several at once.
'''

from collections.abc import Callable
from typing import NamedTuple

_FENCE = '"""'

# Reads one line without its end; the argument says whether it continues the previous one. EOFError at the end.
ReadLine = Callable[[bool], str]


class ChatInput(NamedTuple):
    text: str
    may_be_command: bool = True  # False for a block, which is always a message


def read_input(read_line: ReadLine) -> ChatInput:
    """The next message or command; EOFError if there is none. The end of input completes an unfinished message."""
    line = read_line(False)
    if line.startswith(_FENCE):
        return ChatInput(_block(line.removeprefix(_FENCE), read_line), may_be_command=False)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        try:
            lines.append(read_line(True))
        except EOFError:
            break
    return ChatInput("\n".join(lines).strip("\r\n"))


def _block(line: str, read_line: ReadLine) -> str:
    lines = [line]
    while not lines[-1].rstrip().endswith(_FENCE):
        try:
            lines.append(read_line(True))
        except EOFError:
            break
    lines[-1] = lines[-1].rstrip().removesuffix(_FENCE)
    return "\n".join(lines).strip("\r\n")
