"""The marks around thoughts and calls in an answer: the fields of a row in the families' tables.

A row for thoughts is `ThoughtMarks`, one for calls of tools is `CallMarks` with its forms. What stands inside a call is
read by the form's `CallReader`, and written by its `bodies` where the model is held to the tools' schemas.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

# Of the request's tools, by name: the JSON schema of each argument, by its name.
Tools = Mapping[str, Mapping[str, Any]]


class CallPiece(NamedTuple):
    """The new part of a call."""

    name: str | None  # in the first piece only: a name begins a call
    arguments: str  # a piece of a JSON object's text


class CallReader(Protocol):
    """Reads what follows a form's opening mark. What it tells must not depend on how the text is cut into pieces.

    Once it has told a name there is a call; what it has read before that can still become text again.
    """

    @property
    def is_text(self) -> bool:
        """It has told nothing and never will: all that it has read is text."""

    @property
    def is_over(self) -> bool:
        """It has read the last of its calls. Looked at only where the form has no closing mark."""

    @property
    def is_whole(self) -> bool:
        """The arguments of every call told are complete and well-formed."""

    @property
    def text(self) -> str:
        """What stands inside, beside the calls that it has told, and is part of none."""

    @property
    def rest(self) -> str:
        """What follows the last call, once the reader is over; looked at only where the form has no closing mark."""

    def feed(self, text: str) -> list[CallPiece]:
        """The new parts of calls in this text."""

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        """What is left to tell now that the closing mark stands there, or that the answer has ended (`is_cut`)."""


ReaderOf = Callable[[Tools], CallReader]  # makes the reader of one call


@dataclass(frozen=True, slots=True)
class Marks:
    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class Channels:
    """Marks of messages whose headers say what they are: `<|start|>assistant<|channel|>final<|message|>Hi.<|end|>`.

    A family whose answers are such messages has them in both of its rows.
    """

    start: str
    channel: str
    format: str  # before the name of the text's format
    message: str  # behind the header
    ends: tuple[str, ...]
    role: str  # of the model
    recipient: str  # before the name of the tool that the message calls
    thoughts: tuple[str, ...]  # the channels whose messages are thoughts
    texts: tuple[str, ...]  # and those whose messages the user sees

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.start, self.channel, self.format, self.message, *self.ends)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.thoughts, *self.texts)


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """How a family of models writes its thoughts, which stand only at an answer's beginning."""

    opening: str
    closing: str
    openings: tuple[str, ...] = ()  # further ones of the same meaning
    closings: tuple[str, ...] = ()
    begins_open: bool = False  # an answer begins within the thought, unless the prompt has closed it
    answer: Marks | None = None  # what may stand around the answer that follows; left out
    forced: str = ""  # what the model writes to close a thought; unset: the closing mark between line breaks
    calls: tuple[str, ...] = ()  # what begins a call in the thought's place, for the engine, which knows no other
    # The answer is messages in channels; the marks above are those of whole headers, by which the engine goes.
    channels: Channels | None = None

    @property
    def all_openings(self) -> tuple[str, ...]:
        return (self.opening, *self.openings)

    @property
    def all_closings(self) -> tuple[str, ...]:
        return (self.closing, *self.closings)

    @property
    def shown(self) -> frozenset[str]:
        """What must reach the reader as text, even where the tokenizer would hide it as a special token."""
        if self.channels is not None:
            return frozenset(self.channels.marks)
        around = (self.answer.opening, self.answer.closing) if self.answer else ()
        return frozenset((*self.all_openings, *self.all_closings, *around))


@dataclass(frozen=True, slots=True)
class JsonBody:
    """`{"name": "f", "arguments": {"a": 1}}`, or a list of such objects."""

    is_list: bool = False


Pieces = tuple[str | re.Pattern[str], ...]  # texts as they stand, and expressions that a text matches


@dataclass(frozen=True, slots=True)
class HeadedBody:
    """A tool's name, and its arguments as a JSON object."""

    between: Pieces = ()
    before: Pieces = ()
    behind: Pieces = ()


@dataclass(frozen=True, slots=True)
class Tags:
    """How a family writes what is inside a call, in this order; "" for a mark that it doesn't have."""

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


@dataclass(frozen=True, slots=True)
class CallForm:
    """One way to write a call, or several in a row."""

    opening: str
    reader: ReaderOf
    closing: str | None = None  # None: the reader finds the end by itself
    inner: tuple[str, ...] = ()  # marks that the reader looks for
    # The opening is part of what the reader reads, and no mark unless it begins a line: "{", say.
    is_bare: bool = False
    # The ways to write what follows the opening, of which a call takes one; none where calls aren't held to a schema.
    bodies: tuple[CallBody, ...] = ()
    begins: str = ""  # the mark before the bodies, where the opening is none of calls alone


@dataclass(frozen=True, slots=True)
class CallMarks:
    """How a family of models writes its calls."""

    forms: tuple[CallForm, ...]
    wrapper: Marks = field(default=Marks("", ""))  # what may stand around one call or several; left out with them
    separator: str = ""  # what may stand between two calls; left out
    channels: Channels | None = None  # a call is a message, whose recipient and text the only form's reader gets

    @property
    def shown(self) -> frozenset[str]:
        """What must reach the reader as text, even where the tokenizer would hide it as a special token."""
        own = [mark for form in self.forms for mark in (form.opening, form.closing, *form.inner)]
        return frozenset(mark for mark in (*own, self.wrapper.opening, self.wrapper.closing) if mark)
