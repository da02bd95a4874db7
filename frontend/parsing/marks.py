"""The marks around thoughts and calls in an answer: the fields of a row in the families' tables.

A row for thoughts is `ThoughtMarks`, one for tool calls is `CallMarks` with its forms. The form's `CallReader` reads
the inside of a call; its `bodies` describe how to write it if the model must follow the tools' schemas.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

# The request's tools by name: the JSON schema of each argument, by its name.
Tools = Mapping[str, Mapping[str, Any]]


class CallPiece(NamedTuple):
    """The new part of a call."""

    name: str | None  # in the first piece only: a name begins a call
    arguments: str  # a piece of a JSON object's text


class CallReader(Protocol):
    """Reads what follows a form's opening mark. Its results must not depend on how the text is cut into pieces.

    Once it has returned a name, there is a call; anything read before that can still become text again.
    """

    @property
    def is_text(self) -> bool:
        """It has returned nothing and never will: everything read is text."""

    @property
    def is_over(self) -> bool:
        """It has read the last of its calls. Checked only if the form has no closing mark."""

    @property
    def is_whole(self) -> bool:
        """The arguments of every returned call are complete and well-formed."""

    @property
    def text(self) -> str:
        """Text inside that belongs to none of the returned calls."""

    @property
    def rest(self) -> str:
        """Text after the last call, once the reader is over; used only if the form has no closing mark."""

    def feed(self, text: str) -> list[CallPiece]:
        """The new parts of calls in this text."""

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        """The remaining parts, after the closing mark or the end of the answer (`is_cut`)."""


ReaderOf = Callable[[Tools], CallReader]  # makes the reader of one call


class Marks(NamedTuple):
    opening: str
    closing: str


class Channels(NamedTuple):
    """Marks of messages with headers: `<|start|>assistant<|channel|>final<|message|>Hi.<|end|>`.

    A family with such messages has them in both of its rows.
    """

    start: str
    channel: str
    format: str  # before the name of the text's format
    message: str  # after the header
    ends: tuple[str, ...]
    role: str  # of the model
    recipient: str  # before the name of the tool that the message calls
    thoughts: tuple[str, ...]  # channels of thoughts
    texts: tuple[str, ...]  # channels of messages for the user

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.start, self.channel, self.format, self.message, *self.ends)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.thoughts, *self.texts)


class ThoughtMarks(NamedTuple):
    """How a model family writes its thoughts, which only occur at an answer's beginning."""

    opening: str
    closing: str
    openings: tuple[str, ...] = ()  # alternatives
    closings: tuple[str, ...] = ()
    begins_open: bool = False  # an answer begins within the thought, unless the prompt has closed it
    answer: Marks | None = None  # marks that may enclose the following answer; left out
    forced: str = ""  # the text that the model writes to close a thought; unset: the closing mark between line breaks
    calls: tuple[str, ...] = ()  # marks that begin a call instead of the thought's end, for the engine
    # The answer is messages in channels; the marks above are whole headers, for the engine.
    channels: Channels | None = None

    @property
    def all_openings(self) -> tuple[str, ...]:
        return (self.opening, *self.openings)

    @property
    def all_closings(self) -> tuple[str, ...]:
        return (self.closing, *self.closings)

    @property
    def shown(self) -> frozenset[str]:
        """Marks that must stay in the text, even if the tokenizer would hide them as special tokens."""
        if self.channels is not None:
            return frozenset(self.channels.marks)
        around = (self.answer.opening, self.answer.closing) if self.answer else ()
        return frozenset((*self.all_openings, *self.all_closings, *around))


class JsonBody(NamedTuple):
    """`{"name": "f", "arguments": {"a": 1}}`, or a list of such objects."""

    is_list: bool = False


Pieces = tuple[str | re.Pattern[str], ...]  # literal texts, and expressions that a text matches


class HeadedBody(NamedTuple):
    """A tool's name, and its arguments as a JSON object."""

    between: Pieces = ()
    before: Pieces = ()
    behind: Pieces = ()


class Tags(NamedTuple):
    """A family's marks inside a call, in this order; "" for a mark that it doesn't have."""

    name_end: str
    key_opening: str
    key_closing: str
    value_opening: str
    value_closing: str

    @property
    def shown(self) -> tuple[str, ...]:
        marks = (self.name_end, self.key_opening, self.key_closing, self.value_opening, self.value_closing)
        return tuple(mark for mark in marks if mark.strip())


CallBody = JsonBody | HeadedBody | Tags


class CallForm(NamedTuple):
    """One format of a call, or of several in a row."""

    opening: str
    reader: ReaderOf
    closing: str | None = None  # None: the reader finds the end by itself
    inner: tuple[str, ...] = ()  # marks that the reader looks for
    # The opening is part of the reader's text, and a mark only at the beginning of a line: "{", say.
    is_bare: bool = False
    # The formats of the text after the opening, of which a call has one; empty if calls aren't held to a schema.
    bodies: tuple[CallBody, ...] = ()
    begins: str = ""  # the mark before the bodies, if the opening also begins other things than calls


class CallMarks(NamedTuple):
    """How a model family writes its calls."""

    forms: tuple[CallForm, ...]
    wrapper: Marks = Marks("", "")  # marks that may enclose one or more calls; left out with them
    separator: str = ""  # text that may separate two calls; left out
    channels: Channels | None = None  # a call is a message, whose recipient and text are read by the only form's reader

    @property
    def shown(self) -> frozenset[str]:
        """Marks that must stay in the text, even if the tokenizer would hide them as special tokens."""
        own = [mark for form in self.forms for mark in (form.opening, form.closing, *form.inner)]
        return frozenset(mark for mark in (*own, self.wrapper.opening, self.wrapper.closing) if mark)
