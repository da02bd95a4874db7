"""Takes an answer apart while it comes: thought, text, calls of tools.

    start ──► thought ──► text ◄──► call

A thought stands only at an answer's beginning. What began with the mark of a call and turns out to be none is text.
The parts joined don't depend on how the answer was cut into pieces: a decision is made only on what can't change any
more, so the beginning of a mark is held back, and so is white space, which is dropped around thoughts and calls.
Knows nothing of tokens or requests, and of a call's inside only that a `CallReader` reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...protocol.outputs import FunctionCall, ToolCall


class CallPiece(NamedTuple):
    """What is new of a call."""

    name: str | None  # in the first piece only
    arguments: str


class CallReader(Protocol):
    """Reads what stands between the marks of one call."""

    @property
    def is_text(self) -> bool:
        """It can't become a call any more."""

    @property
    def is_whole(self) -> bool:
        """Its arguments are complete and well-formed."""

    def feed(self, inside: str) -> CallPiece | None:
        """What this much more of the inside tells. Whatever has given a piece is a call."""

    def close(self) -> CallPiece | None:
        """What is left to tell, now that the inside is complete."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Between which marks something stands in an answer."""

    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class CallMarks(Marks):
    reader: Callable[[], CallReader]


@dataclass(slots=True)
class Parts:
    """What is new of an answer."""

    thought: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, index: int, call_id: str, piece: CallPiece) -> None:
        """Pieces of one call become one; its id comes with its name."""
        if not self.calls or self.calls[-1].index != index:
            self.calls.append(ToolCall(None, FunctionCall(None, ""), index))
        call = self.calls[-1]
        if piece.name is not None:
            call.id, call.function.name = call_id, piece.name
        call.function.arguments += piece.arguments


class AnswerReader:
    """Reads one answer. Where `thoughts` or `calls` is None, their marks are text like any other."""

    def __init__(
        self,
        thoughts: Marks | None,
        calls: CallMarks | None,
        call_id: Callable[[int], str],  # of the call with this index
        *,
        is_thinking: bool = False,  # the prompt has begun the thought
    ) -> None:
        self._thoughts = thoughts
        self._calls = calls
        self._call_id = call_id
        self._is_thinking = is_thinking
        self._rest = ""  # not read yet
        self._is_complete = False  # nothing will follow the rest
        self._parts = Parts()
        self._thought = _Trimmed(drops_beginning=True)
        self._text = _Trimmed()
        self._call: CallReader | None = None  # in progress
        self._inside = ""  # of that call
        self._is_call = False  # it has given a piece
        self._num_calls = 0
        self._num_broken = 0
        self._state: Callable[[], bool] = self._in_start if thoughts else self._in_text

    @property
    def has_whole_calls(self) -> bool:
        """There are calls, and none has incomplete arguments."""
        return self._num_calls > 0 and self._num_broken == 0

    def feed(self, text: str, *, is_last: bool = False) -> Parts:
        """What this text adds to the answer; with `is_last` also what was held back."""
        self._rest += text
        self._is_complete = is_last
        self._parts = Parts()
        while self._state():  # each reads on as far as it can, and says whether another goes on from there
            pass
        if is_last:
            self._parts.text += self._text.ending()
        return self._parts

    # --- states --------------------------------------------------------------------------------------------------

    def _in_start(self) -> bool:
        """Nothing but white space so far. A model may repeat the opening mark that the prompt ends with."""
        opening, begun = self._thoughts.opening, self._rest.lstrip()
        if begun.startswith(opening):
            self._rest = begun.removeprefix(opening)
            return self._go_on(self._in_thought)
        if opening.startswith(begun) and not self._is_complete:
            return False
        return self._go_on(self._in_thought if self._is_thinking else self._in_text)

    def _in_thought(self) -> bool:
        thought, is_over = self._read_up_to(self._thoughts.closing)
        self._parts.thought += self._thought.feed(thought)
        if not is_over:
            return False
        self._text.drop_what_follows()
        return self._go_on(self._in_text)

    def _in_text(self) -> bool:
        if self._calls is None:
            text, self._rest, is_call = self._rest, "", False
        else:
            text, is_call = self._read_up_to(self._calls.opening)
        self._parts.text += self._text.feed(text)
        if not is_call:
            return False
        self._call, self._inside, self._is_call = self._calls.reader(), "", False
        return self._go_on(self._in_call)

    def _in_call(self) -> bool:
        inside, is_closed = self._read_up_to(self._calls.closing)
        self._inside += inside
        self._give(self._call.feed(inside))
        if is_closed or self._is_complete:
            self._give(self._call.close())
            return self._end_call() if self._is_call else self._take_back(self._calls.closing if is_closed else "")
        return self._call.is_text and self._take_back("")

    # --- steps ---------------------------------------------------------------------------------------------------

    def _go_on(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _read_up_to(self, mark: str) -> tuple[str, bool]:
        """What stands before the mark, and whether the mark is there. What may be its beginning stays unread."""
        before, found, after = self._rest.partition(mark)
        if found:
            self._rest = after
            return before, True
        border = len(before) if self._is_complete else _possible_mark(mark, before)
        self._rest = before[border:]
        return before[:border], False

    def _give(self, piece: CallPiece | None) -> None:
        if piece is not None:
            self._parts.add(self._num_calls, self._call_id(self._num_calls), piece)
            self._is_call = True

    def _end_call(self) -> bool:
        self._num_calls += 1
        self._num_broken += not self._call.is_whole
        self._text.drop_what_follows()
        return self._go_on(self._in_text)

    def _take_back(self, closing: str) -> bool:
        """No call after all: its opening mark is text, and what followed is read again, for a call may stand in it."""
        self._parts.text += self._text.feed(self._calls.opening)
        self._rest = self._inside + closing + self._rest
        return self._go_on(self._in_text)


class _Trimmed:
    """Lets text through, its white space only once more text follows."""

    def __init__(self, *, drops_beginning: bool = False) -> None:
        self._held = ""
        self._drops = drops_beginning  # white space that comes next

    def drop_what_follows(self) -> None:
        self._drops = True

    def feed(self, text: str) -> str:
        if self._drops:
            text = text.lstrip()
            self._drops = not text
        body = text.rstrip()
        if not body:
            self._held += text
            return ""
        shown, self._held = self._held + body, text[len(body) :]
        return shown

    def ending(self) -> str:
        """The white space held, now that nothing follows; none where a thought or a call was the last thing."""
        held, self._held = "" if self._drops else self._held, ""
        return held


def _possible_mark(mark: str, text: str) -> int:
    """Where the longest end of the text begins that could become the mark."""
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if mark.startswith(text[-length:]):
            return len(text) - length
    return len(text)
