"""Wraps text that arrives in pieces: a word that doesn't fit into the line goes to the next one.

A word is held back until it is complete, and written text is never moved, so the window may be resized between two
pieces. Code between fences and words longer than a line are left to the terminal, so that they can be copied unchanged.
"""

import unicodedata
from collections.abc import Callable

_TAB = 8
_FENCES = ("```", "~~~")
_LONGEST_FENCE = 80  # including the language after it
_JOINED = ("Mn", "Me", "Cf")  # categories of characters that combine with the one before
_JOINER = "\u200d"
# Characters that stay with the one before, and those that stay with the one after, in scripts without spaces.
_CLOSING = frozenset("、。，．：；！？）］｝」』】〕〉》〙〛ー々…‥’”·,.:;!?)]}%")
_OPENING = frozenset("（［｛「『【〔〈《〘〚‘“([{")


class Wrapper:
    def __init__(self, columns: Callable[[], int]) -> None:
        """`columns` returns the window's current width."""
        self._columns = columns
        self._column = 0
        self._gap = ""  # spaces before the word
        self._word = ""
        self._is_too_long = False  # the word is longer than a line and is written as it arrives
        self._line = ""  # its beginning, to find fences
        self._fence: str | None = None  # of the current code block

    def feed(self, text: str) -> str:
        """The text that can be written now."""
        return "".join(map(self._character, text))

    def flush(self) -> str:
        """The word that is still held, at the end of the text."""
        return self._word_end()

    def _character(self, character: str) -> str:
        if character == "\n":
            return self._line_end()
        if len(self._line) < _LONGEST_FENCE:
            self._line = (self._line + character).lstrip()
        if self._fence is not None:
            return character
        if character in " \t":
            written = self._word_end()
            self._gap += character
            return written
        if self._is_too_long:
            self._column = (self._column + _width(character)) % self._columns()
            return character
        written = self._word_end() if self._word and may_break(self._word, character) else ""
        self._word += character
        if width_of(self._word) > self._columns():
            written += self._word_end()
            self._is_too_long = True
        return written

    def _line_end(self) -> str:
        written = self._word_end() + "\n"
        fence = self._line[:3] if self._line[:3] in _FENCES and self._line[:3] not in self._line[3:] else None
        if self._fence is None:
            self._fence = fence
        elif self._fence == fence:
            self._fence = None
        self._column, self._gap, self._line = 0, "", ""
        return written

    def _word_end(self) -> str:
        self._is_too_long = False
        if not self._word:
            return ""
        columns = self._columns()
        gap, width = self._gap, width_of(self._word)
        after_gap = _after(self._column, gap)
        if self._column and after_gap + width > columns:
            written, self._column = "\n" + self._word, width
        else:
            written, self._column = gap + self._word, after_gap + width
        if self._column > columns:  # the terminal has broken it
            self._column %= columns
        self._gap = self._word = ""
        return written


def may_break(word: str, after: str) -> bool:
    """Whether a line may end between a word's characters so far and a following non-space."""
    before = word[-1]
    if before == _JOINER or before in _OPENING or after in _CLOSING:
        return False
    if unicodedata.category(after) in _JOINED or _is_skin_tone(after) or _is_hangul(before) or _is_hangul(after):
        return False
    if _is_regional(before) and _is_regional(after):  # two of them form one flag
        return sum(map(_is_regional, word)) % 2 == 0
    return _is_wide(before) or _is_wide(after)


def width_of(text: str) -> int:
    """The most columns that a character takes: terminals differ in which ones they combine."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if character == "\ufe0f":  # turns the previous character into an emoji, which is wider
        return 1
    if unicodedata.category(character) in _JOINED:
        return 0
    return 2 if _is_wide(character) else 1


def _after(column: int, spaces: str) -> int:
    for space in spaces:
        column += _TAB - column % _TAB if space == "\t" else 1
    return column


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF" or _is_regional(character)


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _is_skin_tone(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_hangul(character: str) -> bool:
    """Korean is written with spaces between words."""
    return "\uac00" <= character <= "\ud7a3" or "\u1100" <= character <= "\u11ff" or "\u3130" <= character <= "\u318f"
