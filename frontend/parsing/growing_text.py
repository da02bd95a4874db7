"""Text that arrives in many pieces: collected without copying, trimmed, and searched for marks.

A search's result doesn't depend on how the text was cut: the leftmost mark counts, at one position the longest, and
text that could still become such a mark is held back.
"""

import re
from collections.abc import Iterable
from functools import lru_cache


class GrowingText:
    __slots__ = ("_pieces", "length")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0

    def __bool__(self) -> bool:
        return self.length > 0

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self.length += len(text)

    def take(self) -> str:
        """Take all of it; nothing is left."""
        text = str(self)
        self._pieces, self.length = [], 0
        return text


class Trimmed:
    """Passes text on, and its white space only once more text follows."""

    def __init__(self, *, drops_beginning: bool = False) -> None:
        self._held = GrowingText()  # white space
        self._drops = drops_beginning  # the next white space
        self._has_shown = False

    def drop_what_follows(self) -> None:
        self._drops = True

    def drop_held(self) -> None:
        self._held.take()

    def begin_paragraph(self) -> None:
        """Separate the following text from the text before it, if there was any."""
        self._held.take()
        self._held.add("\n\n" if self._has_shown else "")
        self._drops = True

    def feed(self, text: str) -> str:
        if self._drops:
            text = text.lstrip()
            self._drops = not text
        body = text.rstrip()
        shown = self._held.take() + body if body else ""
        self._has_shown = self._has_shown or bool(body)
        self._held.add(text[len(body) :])
        return shown

    def ending(self) -> str:
        """The white space still held at the end; empty after a thought or a call."""
        held = self._held.take()
        return "" if self._drops else held


class Search:
    """Searches for the first of some marks. Those `at_line` count only if nothing but blanks precede them in the
    line."""

    def __init__(self, marks: Iterable[str], at_line: Iterable[str] = ()) -> None:
        self._marks = tuple(sorted({mark for mark in marks if mark}, key=len, reverse=True))
        at_line = set(at_line)
        parts = [re.escape(mark) for mark in self._marks]
        if at_line:
            parts.append(rf"(?<![^\n])[ \t]*({'|'.join(map(re.escape, sorted(at_line)))})")
        self._pattern = re.compile("|".join(parts)) if parts else None
        self._has_lines = bool(at_line)

    def first(self, text: str, *, is_complete: bool, is_line_blank: bool = True) -> tuple[int, int]:
        """The start and end of the first mark. Without one, both are the position up to which the text can be read
        already."""
        found = None
        if self._pattern is not None:
            before = "" if is_line_blank or not self._has_lines else "x"
            found = self._pattern.search(before + text, len(before))
        start, end = len(text), len(text)
        if found is not None:
            group = found.lastindex or 0
            start, end = found.start(group) - len(before), found.end(group) - len(before)
        if is_complete:
            return start, end
        waiting = self._beginning(text, start, end - start)
        return (start, end) if waiting is None else (waiting, waiting)

    def _beginning(self, text: str, start: int, length: int) -> int | None:
        """Where the text ends with the possible beginning of a mark that precedes or exceeds the one of `length` at
        `start`."""
        longest = len(self._marks[0]) if self._marks else 0
        for index in range(max(0, len(text) - longest + 1), min(start + 1, len(text))):
            tail = text[index:]
            if any(
                mark.startswith(tail) and len(mark) > len(tail) and (index < start or len(mark) > length)
                for mark in self._marks
            ):
                return index
        return None


def beginning(marks: Iterable[str], text: str, *, is_complete: bool) -> str | None:
    """The longest of the marks that begins the text; "" for none, None if more text is needed."""
    marks = [mark for mark in marks if mark]
    found = max((mark for mark in marks if text.startswith(mark)), key=len, default="")
    could_be_longer = any(len(mark) > max(len(text), len(found)) and mark.startswith(text) for mark in marks)
    return None if could_be_longer and not is_complete else found


@lru_cache(maxsize=256)
def search(marks: tuple[str, ...], at_line: tuple[str, ...] = ()) -> Search:
    """A cached `Search`, shared by all readers that look for the same marks."""
    return Search(marks, at_line)
