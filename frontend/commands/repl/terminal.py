"""A chat at a terminal: an editable line with history, streamed answers, dimmed thoughts.

A Ctrl-C stops an answer or a command, or drops a line, never the program, however often it is pressed. Nothing here
moves the cursor, so a window may be resized at any moment; readline handles the line being edited.
"""

import json
import os
import readline
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ...console.logs import state_folder
from .answer_text import DIM, PLAIN, AnswerText, takes_colours, wrapped
from .chat_input import ChatInput, read_input
from .completion import Complete, readline_completer
from .conversation import AnswerDelta

_HINT = "Ctrl-D or /quit leaves, /help lists what else there is."
_BOLD = "\x1b[1m"


class Terminal:
    def __init__(self, complete: Complete) -> None:
        """`complete` returns the possible completions of a line."""
        self.is_coloured = takes_colours()
        self._complete = complete
        self.history = history_file()
        self._may_interrupt = self._was_interrupted = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Terminal":
        self._handlers[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
        readline.set_auto_history(True)
        for entry in read_history(self.history):
            readline.add_history(entry)
        # On by default since GNU readline 8.1: a pasted block is one message instead of one per line.
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_completer(readline_completer(self._complete))
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # Once per line or answer: a second Ctrl-C must not interrupt the code between them. One between a message and
        # its answer is remembered.
        self._was_interrupted = True
        if self._may_interrupt:
            self._may_interrupt = False
            raise KeyboardInterrupt

    def welcome(self) -> None:
        self.say(_HINT)

    def read(self) -> ChatInput:
        while True:
            try:
                typed = self._read()
            except KeyboardInterrupt:
                # readline still has the line that was being typed.
                was_empty = not readline.get_line_buffer()
                print()
                if was_empty:
                    self.say(_HINT)
            except EOFError:
                print()
                raise
            else:
                self._remember(typed.text)
                return typed

    def _read(self) -> ChatInput:
        self._was_interrupted = False
        return read_input(self._line)

    def _line(self, is_continued: bool) -> str:
        # Readline adds a line to its history as soon as it is complete. A Ctrl-C after that, but before `input` has
        # returned, stops the answer and doesn't drop the question. A whole message gets its entry later.
        count = readline.get_current_history_length()
        try:
            self._may_interrupt = True
            line = input(self._mark("… " if is_continued else "> "))
        except KeyboardInterrupt:
            if readline.get_current_history_length() == count:
                raise
            line = readline.get_history_item(count + 1)
        finally:
            self._may_interrupt = False
        if readline.get_current_history_length() > count:
            readline.remove_history_item(count)
        return line

    def _mark(self, mark: str) -> str:
        # Characters between \1 and \2 take no room on the screen.
        return f"\1{_BOLD}\2{mark}\1{PLAIN}\2" if self.is_coloured else mark

    def _remember(self, text: str) -> None:
        count = readline.get_current_history_length()
        if text.strip() and (not count or readline.get_history_item(count) != text):
            readline.add_history(text)
            add_to_history(self.history, text)

    def show(self, pieces: Iterator[AnswerDelta]) -> None:
        """Write an answer as it is generated; Ctrl-C stops it."""
        answer = AnswerText(self.is_coloured)
        with _silent_keyboard():
            try:
                while (piece := self._next(pieces)) is not None:
                    answer.write(piece)
            except KeyboardInterrupt:
                pieces.close()  # type: ignore[attr-defined]  # a generator
            finally:
                answer.end()

    def _next(self, pieces: Iterator[AnswerDelta]) -> AnswerDelta | None:
        # Ctrl-C interrupts the wait for a piece, never the writing of one, so the output position is always known.
        try:
            self._may_interrupt = True
            if self._was_interrupted:
                raise KeyboardInterrupt
            return next(pieces, None)
        finally:
            self._may_interrupt = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end a command, which may take long."""
        self._may_interrupt, self._was_interrupted = True, False
        try:
            yield
        except KeyboardInterrupt:
            self.say("stopped")
        finally:
            self._may_interrupt = False

    def say(self, text: str) -> None:
        """Print a notice, as opposed to the model's text."""
        text = wrapped(text)
        print(f"{DIM}{text}{PLAIN}" if self.is_coloured else text, flush=True)

    def remark(self, text: str) -> None:
        self.say(f"({text})")


@contextmanager
def _silent_keyboard() -> Iterator[None]:
    """Hold back keys typed during an answer for the next prompt, instead of echoing them in the middle."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(keyboard, termios.TCSANOW, before)


# --- input history ---------------------------------------------------------------------------------------------------
# Earlier chats' input, for the arrow keys: one JSON string per line, so that a message may have several lines. The file
# is in the user's state folder, readable by nobody else; the oldest entries are dropped when it is read.

_KEPT = 1000


def history_file() -> Path:
    """The history file; the null device if nothing can be kept."""
    try:
        return state_folder() / "chat-history.jsonl"
    except OSError:
        return Path(os.devnull)


def read_history(path: Path) -> list[str]:
    """Read entries, oldest first; a missing or damaged file gives as many as can be read."""
    entries: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return entries
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, str):
                entries.append(entry)
    if len(entries) > _KEPT:
        entries = entries[-_KEPT:]
        _replace(path, entries)
    return entries


def add_to_history(path: Path, entry: str) -> None:
    """Append an entry at once, so that two chats can share a file. A folder that cannot be written keeps no history."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=_private) as file:
            file.write(json.dumps(entry) + "\n")


def _replace(path: Path, entries: list[str]) -> None:
    with suppress(OSError):
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        with open(fresh, "w", encoding="utf-8", opener=_private) as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        fresh.replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)
