"""Writes to standard error without failing if it is closed, broken or full: such a line is lost.

A line bypasses Python's buffer, where it would stay and make the interpreter fail once more at its end. Where standard
error is not a file of the system's (a notebook, a test that captures it) it is printed as usual. A terminal may show a
line that changes, which is removed when anything else is written.
"""

import io
import os
import select
import shutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...protocol.files.utf8 import shown
from .printable import printable

_PIECE = select.PIPE_BUF  # what a pipe takes at once if it takes anything
_PATIENCE = 1000  # milliseconds to wait for a slow reader
_CLEAR_LINE = "\r\x1b[K"
_is_stuck = False
_has_status = False
_lock = threading.RLock()


def write_line(text: str) -> None:
    write(printable(text) + "\n")


def write(text: str) -> None:
    with _lock:
        clear_status()
        _write(text)


def columns() -> int | None:
    """The width of the terminal that shows standard error; None if none does."""
    with suppress(OSError, ValueError, AttributeError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    return None


def takes_status() -> bool:
    """Whether standard error is a terminal that can clear a line."""
    return StandardError().isatty() and os.environ.get("TERM", "dumb") != "dumb"


def show_status(text: str) -> None:
    """Replace the previous status line; call only if `takes_status`."""
    global _has_status
    with _lock:
        _write(_CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])
        _has_status = True


def clear_status() -> None:
    global _has_status
    with _lock:
        if _has_status:
            _has_status = False
            _write(_CLEAR_LINE)


def _write(text: str) -> None:
    stream = sys.stderr
    with suppress(Exception):  # OSError; ValueError of one that was closed; whatever a stand-in raises
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer between
        if isinstance(raw, io.FileIO):
            content = text.encode(stream.encoding or "utf-8", stream.errors or "backslashreplace")
            _write_to(raw.fileno(), content, stream)
        else:
            stream.write(text)
            stream.flush()


def _write_to(descriptor: int, content: bytes, stream: Any) -> None:
    """Write in pieces, each once it is accepted: standard error may be a pipe that nobody reads."""
    if _takes(descriptor):
        stream.flush()  # write earlier output first
    while content and _takes(descriptor):
        content = content[os.write(descriptor, content[:_PIECE]) :]


def _takes(descriptor: int) -> bool:
    """Whether it accepts bytes now. After one wait in vain, don't wait again until it accepts some."""
    global _is_stuck
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    _is_stuck = not poll.poll(0 if _is_stuck else _PATIENCE)
    return not _is_stuck


class StandardError:
    """The same as a file, for libraries that want one."""

    @property
    def encoding(self) -> str:
        return getattr(sys.stderr, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        write(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def isatty(self) -> bool:
        with suppress(OSError, ValueError, AttributeError):
            return sys.stderr.isatty()
        return False

    def fileno(self) -> int:
        return sys.stderr.fileno()


def target() -> str:
    """The target of standard error in the system's words: a terminal's or a file's path, or a pipe."""
    with suppress(OSError):
        return shown(Path(os.readlink("/proc/self/fd/2")))
    return ""


def fill_closed_descriptors() -> None:
    """Give the null device to those of the first three descriptors that are closed.

    Otherwise the next file or socket to be opened would be one of them, and get libraries' messages to standard error.
    """
    with suppress(OSError):
        while (filled := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(filled)


def settle_at_exit() -> None:
    """Call at a command's end: a buffer that nobody reads would make the interpreter's own exit fail."""
    for name in ("stdout", "stderr"):
        try:
            if (stream := getattr(sys, name)) is not None:
                stream.flush()
        except (OSError, ValueError):
            setattr(sys, name, None)
