"""Reads the header of a message in channels: `<|start|>assistant<|channel|>commentary to=functions.f<|message|>`.

A header's parts may be missing or in another order: the recipient is in the role's or the channel's section, the text's
format may lack its mark. A header's meaning depends on its text alone, and more text never changes earlier decisions.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .marks import Channels

_LONGEST = 256  # characters; a longer one is no header, or has lost its closing mark
_NOBODY = ("assistant", "user", "all")  # recipients that are no tools


class Header(NamedTuple):
    """The parts of a header; "" for missing ones."""

    role: str
    channel: str
    recipient: str
    end: int  # where the message's text begins


class NoHeader:
    """The text only began like a header."""


NO_HEADER = NoHeader()
Found = Header | NoHeader | None  # None: more text is needed


class HeaderReader:
    """Reads the header at a text's beginning, while the text arrives."""

    def __init__(self, channels: Channels, begun: str = "") -> None:
        """`begun` precedes the text."""
        self._channels = channels
        self._text = begun  # as much of it as a header may have
        self._place = 0  # how far it is read
        self._is_long = self._is_final = False
        self._begin()

    def _begin(self) -> None:
        self._role = self._channel = self._recipient = ""
        self._expected = ""  # the kind of the next word
        self._is_marked = False  # the channel's name had its mark
        self._surplus: int | None = None  # where the first word begins that can't be in a header

    def feed(self, text: str, *, is_complete: bool) -> Found:
        """Read more text. `is_complete`: nothing will follow it."""
        self._text = (self._text + text)[:_LONGEST]
        self._is_long = len(self._text) == _LONGEST
        self._is_final = is_complete or self._is_long
        for piece, start, end in self._pieces():
            found = self._take(piece, start, end)
            if found is not None:
                return found
            self._place = end
        return self._cut_off() if self._is_final else None

    def _pieces(self) -> Iterator[tuple[str, int, int]]:
        """Marks and words, except for one that may still grow, unless no growth would make it a header."""
        for match in _pattern(self._channels).finditer(self._text, self._place):
            piece, end = match[0], match.end()
            is_whole = piece in self._channels.marks or piece == "{" or end < len(self._text) or self._is_final
            if is_whole or self._is_unknown(_without_beginning(piece, self._channels.marks)):
                yield piece, match.start(), end

    def _take(self, piece: str, start: int, end: int) -> Found:
        channels = self._channels
        if piece == channels.message:
            return self._header(end)
        if piece == channels.start and not (self._channel or self._recipient):
            self._begin()
            self._expected = "role"
        elif piece == channels.start or piece in channels.ends:
            return self._without_mark(start)
        elif piece in channels.marks:
            self._is_marked = self._is_marked or piece == channels.channel
            self._expected = "channel" if piece == channels.channel else "format"
        elif piece == "{" and (self._recipient or self._is_marked):
            return self._without_mark(start)
        else:
            return self._take_word(piece, start)
        return None

    def _take_word(self, word: str, start: int) -> Found:
        expected, self._expected = self._expected, ""
        if word.startswith(self._channels.recipient):
            self._recipient = word.removeprefix(self._channels.recipient)
            self._expected = "" if self._recipient else "recipient"
        elif expected == "role":
            self._role = word
        elif expected == "recipient":
            self._recipient = word
        elif expected == "channel" or (not self._channel and word in self._channels.names):
            self._channel = word
        elif self._is_unknown(word):
            return NO_HEADER
        elif expected != "format" and self._surplus is None:
            self._surplus = start
        return None

    def _is_unknown(self, word: str) -> bool:
        """Whether a word that must be one of a few is not the beginning of any of them."""
        if self._is_marked or self._channel or self._expected:
            return False
        known = (self._channels.recipient, *self._channels.names)
        return not word.startswith(self._channels.recipient) and not any(each.startswith(word) for each in known)

    def _header(self, end: int) -> Header:
        recipient = "" if self._recipient in _NOBODY else self._recipient
        return Header(self._role, self._channel, recipient, end)

    def _without_mark(self, end: int) -> Found:
        """The header of a message whose text begins without the mark."""
        is_marked = self._is_marked and self._channel in self._channels.names
        if self._surplus is not None and not is_marked:
            return NO_HEADER
        is_header = is_marked or self._recipient or (self._role == self._channels.role and not self._channel)
        return self._header(end if self._surplus is None else self._surplus) if is_header else NO_HEADER

    def _cut_off(self) -> Found:
        """Decide when the answer, or the longest possible header, ends here."""
        if self._is_long:
            return NO_HEADER if self._surplus is None else self._without_mark(len(self._text))
        if self._surplus is not None and not self._recipient:
            rest = self._text[self._surplus :].strip()
            if not self._channels.recipient.startswith(rest):
                return self._without_mark(len(self._text))
        # Nothing is lost from a message whose header isn't complete.
        return Header(self._channels.role, "", "", len(self._text)) if self._is_begun else NO_HEADER

    @property
    def _is_begun(self) -> bool:
        """Whether the text may be the beginning of one of the model's own headers."""
        if not self._channels.role.startswith(self._role):
            return False
        if self._is_marked:
            return any(name.startswith(self._channel) for name in self._channels.names)
        return bool(self._recipient or self._expected) or not self._channel


class PromptEnd(NamedTuple):
    """The position in a message at which an answer begins."""

    begun: str = ""  # the part of a header in the prompt
    header: Header | None = None  # of the message whose text has begun


def prompt_end(channels: Channels, prompt: str) -> PromptEnd:
    index, last = max(((prompt.rfind(mark), mark) for mark in channels.marks), default=(-1, ""))
    if index < 0 or last in channels.ends:
        return PromptEnd()
    start = max(prompt.rfind(channels.start), prompt.rfind(channels.message, 0, index))
    if not prompt.startswith(channels.start, start):  # another message has begun before this one's end
        start = prompt.rfind(channels.channel)
    begun = prompt[max(start, 0) :]
    if last != channels.message:
        return PromptEnd(begun)
    found = HeaderReader(channels).feed(begun, is_complete=True)
    return PromptEnd("", found if isinstance(found, Header) else None)


def is_thinking(channels: Channels, prompt: str) -> bool:
    """Whether no message for the user has begun, although one has begun or must that states its kind."""
    ending = prompt_end(channels, prompt)
    if ending.header is None:
        return bool(ending.begun)
    return bool(ending.header.recipient) or ending.header.channel in channels.thoughts


@lru_cache(maxsize=16)
def _pattern(channels: Channels) -> re.Pattern[str]:
    marks = "|".join(map(re.escape, channels.marks))
    return re.compile(rf"{marks}|\{{|(?:(?!{marks})[^\s{{])+")


def _without_beginning(word: str, marks: tuple[str, ...]) -> str:
    """The word, without the possible beginning of a mark at its end."""
    index = word.rfind("<")
    return word[:index] if index >= 0 and any(mark.startswith(word[index:]) for mark in marks) else word
