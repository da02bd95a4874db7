"""Reads the header of a message in channels: `<|start|>assistant<|channel|>commentary to=functions.f<|message|>`.

A header's parts may be missing or come in another order: the recipient stands in the role's or in the channel's
section, the format of the text has a mark or none. What a header says depends on its text alone, and a longer text
never changes what its beginning has decided.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .marks import Channels

_LONGEST = 256  # characters; what has no end by then is no header, or has lost the mark of its end
_NOBODY = ("assistant", "user", "all")  # recipients that are no tools


class Header(NamedTuple):
    """What a header says; "" for what it doesn't."""

    role: str
    channel: str
    recipient: str
    end: int  # where the message's text begins


class NoHeader:
    """What began like a header is text."""


NO_HEADER = NoHeader()
Found = Header | NoHeader | None  # None: more text must tell


class HeaderReader:
    """Reads the header that a text begins with, while the text comes."""

    def __init__(self, channels: Channels, begun: str = "") -> None:
        """`begun` is what stands before the text."""
        self._channels = channels
        self._text = begun  # as much of it as a header may have
        self._place = 0  # up to where it is read
        self._is_long = self._is_final = False
        self._begin()

    def _begin(self) -> None:
        self._role = self._channel = self._recipient = ""
        self._expected = ""  # what the next word is
        self._is_marked = False  # the channel's name had its mark
        self._surplus: int | None = None  # where the first word begins that has no place in a header

    def feed(self, text: str, *, is_complete: bool) -> Found:
        """What more text tells. `is_complete`: nothing will follow it."""
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
        """Marks and words. One that may still grow is left out, unless no growth would make a header of it."""
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
        """Whether a word stands where only few may, and is the beginning of none of them."""
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
        """The answer, or the most that a header may have, ends here."""
        if self._is_long:
            return NO_HEADER if self._surplus is None else self._without_mark(len(self._text))
        if self._surplus is not None and not self._recipient:
            rest = self._text[self._surplus :].strip()
            if not self._channels.recipient.startswith(rest):
                return self._without_mark(len(self._text))
        # Nothing is lost of a message whose header isn't complete.
        return Header(self._channels.role, "", "", len(self._text)) if self._is_begun else NO_HEADER

    @property
    def _is_begun(self) -> bool:
        """Whether what there is may be the beginning of one of the model's own headers."""
        if not self._channels.role.startswith(self._role):
            return False
        if self._is_marked:
            return any(name.startswith(self._channel) for name in self._channels.names)
        return bool(self._recipient or self._expected) or not self._channel


class PromptEnd(NamedTuple):
    """Where in a message an answer begins."""

    begun: str = ""  # the part of a header that stands in the prompt
    header: Header | None = None  # of the message whose text has begun


def prompt_end(channels: Channels, prompt: str) -> PromptEnd:
    place, last = max(((prompt.rfind(mark), mark) for mark in channels.marks), default=(-1, ""))
    if place < 0 or last in channels.ends:
        return PromptEnd()
    start = max(prompt.rfind(channels.start), prompt.rfind(channels.message, 0, place))
    if not prompt.startswith(channels.start, start):  # another message has begun without being ended
        start = prompt.rfind(channels.channel)
    begun = prompt[max(start, 0) :]
    if last != channels.message:
        return PromptEnd(begun)
    found = HeaderReader(channels).feed(begun, is_complete=True)
    return PromptEnd("", found if isinstance(found, Header) else None)


def is_thinking(channels: Channels, prompt: str) -> bool:
    """Whether no message that the user sees has begun, though one that says what it is has or must."""
    place = prompt_end(channels, prompt)
    if place.header is None:
        return bool(place.begun)
    return bool(place.header.recipient) or place.header.channel in channels.thoughts


@lru_cache(maxsize=16)
def _pattern(channels: Channels) -> re.Pattern[str]:
    marks = "|".join(map(re.escape, channels.marks))
    return re.compile(rf"{marks}|\{{|(?:(?!{marks})[^\s{{])+")


def _without_beginning(word: str, marks: tuple[str, ...]) -> str:
    """The word without what may become a mark at its end."""
    place = word.rfind("<")
    return word[:place] if place >= 0 and any(mark.startswith(word[place:]) for mark in marks) else word
