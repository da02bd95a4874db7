"""Separates an answer into thought, text and tool calls while it comes.

    start ──► thought ──► text ──► call ──► behind the call
                           ▲ └──► wrapper ───▲ │
                           └───────────────────┘

A thought stands only at an answer's beginning. What began with the mark of a call and turns out to be none is text. The
parts joined don't depend on how the answer was cut into pieces: a decision is made only on what can't change any more,
so the beginning of a mark is held back, and so is white space, which is dropped around thoughts and calls.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ...protocol.outputs import FunctionCall, ToolCall
from .growing_text import GrowingText, Search, Trimmed, beginning, search
from .marks import CallForm, CallMarks, CallPiece, CallReader, ThoughtMarks, Tools


@dataclass(slots=True)
class Parts:
    """The new parts of an answer."""

    thought: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)


@dataclass(slots=True)
class _NewParts:
    """The new parts in pieces, while they are read."""

    thought: GrowingText = field(default_factory=GrowingText)
    text: GrowingText = field(default_factory=GrowingText)
    calls: list[tuple[ToolCall, GrowingText]] = field(default_factory=list)  # with the arguments of each

    def add(self, index: int, call_id: str, piece: CallPiece) -> None:
        """Pieces of one call become one; its id comes with its name."""
        if not self.calls or self.calls[-1][0].index != index:
            self.calls.append((ToolCall(None, FunctionCall(None, ""), index), GrowingText()))
        call, arguments = self.calls[-1]
        if piece.name is not None:
            call.id, call.function.name = call_id, piece.name
        arguments.add(piece.arguments)

    def joined(self) -> Parts:
        for call, arguments in self.calls:
            call.function.arguments = str(arguments)
        return Parts(str(self.thought), str(self.text), [call for call, _ in self.calls])


@dataclass(slots=True)
class _Call:
    """The call that is being read, and its text in case it is none."""

    form: CallForm
    reader: CallReader
    before: str  # its marks as they were written
    inside: GrowingText = field(default_factory=GrowingText)  # what followed, as long as it can still become text
    is_told: bool = False


class AnswerReader:
    """Reads one answer. Where `thoughts` or `calls` is None, their marks are text like any other."""

    def __init__(
        self,
        thoughts: ThoughtMarks | None,
        calls: CallMarks | None,
        tools: Tools,
        call_id: Callable[[int], str],  # of the call with this index
        *,
        is_thinking: bool = False,  # the answer begins within its thought
    ) -> None:
        self._thoughts = thoughts or _NO_THOUGHTS
        self._calls = calls or _NO_CALLS
        self._tools = tools
        self._call_id = call_id
        self._is_thinking = is_thinking
        self._rest = ""  # not read yet; short, since every step looks at it or copies it
        self._ahead: deque[str] = deque()  # what follows it, in pieces
        self._blanks = GrowingText()  # white space before it, whose meaning the rest decides
        self._is_last = False  # nothing will follow what is ahead
        self._parts = _NewParts()
        self._thought = Trimmed(drops_beginning=True)
        self._text = Trimmed()
        self._is_line_blank = True  # what the text's last line has so far
        self._answer_end = ""  # a mark that is left out of the text
        self._num_calls = 0
        self._num_broken = 0
        self._forms = {form.opening: form for form in self._calls.forms}
        self._state: Callable[[], bool] = self._in_start if thoughts else self._in_text

    @property
    def has_whole_calls(self) -> bool:
        """There are calls, and none has incomplete arguments."""
        return self._num_calls > 0 and self._num_broken == 0

    def feed(self, text: str, *, is_last: bool = False) -> Parts:
        """What this text adds to the answer; with `is_last` also what was held back."""
        self._is_last = is_last
        self._parts = _NewParts()
        if len(text) <= _PIECE:
            self._rest += text
        else:
            self._put_ahead(text)
        while True:
            while self._state():  # each reads on as far as it can, and says whether another goes on from there
                pass
            if not self._ahead:
                break
            self._rest += self._ahead.popleft()
        if is_last:
            self._parts.text.add(self._text.ending())
        return self._parts.joined()

    def _put_ahead(self, text: str) -> None:
        """Read this text next, before what is ahead already."""
        self._ahead.extendleft(text[start : start + _PIECE] for start in reversed(range(0, len(text), _PIECE)))

    @property
    def _is_complete(self) -> bool:
        """Nothing will follow the rest."""
        return self._is_last and not self._ahead

    # --- states: thought and text --------------------------------------------------------------------------------

    def _in_start(self) -> bool:
        """Nothing but white space so far. A model may repeat the opening mark that the prompt ends with."""
        opening = self._opening_behind_blanks(self._thoughts.all_openings)
        if opening is None:
            return False
        return self._go_on(self._in_thought if opening or self._is_thinking else self._before_answer)

    def _in_thought(self) -> bool:
        thought, closing = self._read_up_to(search(self._thoughts.all_closings))
        self._parts.thought.add(self._thought.feed(thought))
        if not closing:
            return False
        self._text.drop_what_follows()
        return self._go_on(self._before_answer)

    def _before_answer(self) -> bool:
        """The answer may stand between marks of its own."""
        if (marks := self._thoughts.answer) is None:
            return self._go_on(self._in_text)
        opening = self._opening_behind_blanks((marks.opening,))
        if opening is None:
            return False
        if opening:
            self._text.drop_what_follows()
            self._answer_end = marks.closing
        return self._go_on(self._in_text)

    def _in_text(self) -> bool:
        text, mark = self._read_up_to(self._next_in_text())
        self._show(text)
        if not mark:
            return False
        if mark == self._answer_end:
            self._text.drop_held()
            self._text.drop_what_follows()
            return True
        if mark == self._calls.wrapper.opening:
            return self._go_on(self._in_wrapper)
        return self._begin_call(mark, mark)

    # --- states: calls -------------------------------------------------------------------------------------------

    def _in_wrapper(self) -> bool:
        """Behind the mark that opens a list of calls; without a call it is text."""
        wrapper, blanks = self._calls.wrapper.opening, self._skipped_blanks()
        opening = self._beginning(self._forms, self._rest)
        if opening is None:
            return False
        if not opening:
            self._show(wrapper)
            self._put_blanks_back()
            return self._go_on(self._in_text)
        self._rest = self._rest.removeprefix(opening)
        return self._begin_call(opening, wrapper + blanks.take() + opening)

    def _in_call(self, call: _Call) -> bool:
        reader = call.reader
        inside, closing = self._inside_of(call)
        if not call.is_told:
            call.inside.add(inside)
        self._give(call, reader.feed(inside))
        is_over = call.form.closing is None and reader.is_over
        if not is_over and (closing or (self._is_complete and not self._rest)):
            self._give(call, reader.close(is_cut=not closing))
            is_over = True
        if is_over:
            return self._end_call(call) if call.is_told else self._take_back(call, closing)
        return self._take_back(call, "") if reader.is_text else bool(inside and self._rest)

    def _behind_call(self) -> bool:
        """Another call may follow at once, or the list of calls ends."""
        self._skipped_blanks()
        separator = self._calls.separator
        mark = self._beginning((self._calls.wrapper.closing, separator, *self._forms), self._rest)
        if not mark or mark != separator:
            return self._next_call(mark)
        self._blanks.add(mark)
        self._rest = self._rest.removeprefix(mark)
        return self._go_on(self._behind_separator)

    def _behind_separator(self) -> bool:
        """Behind a separator, which is text unless a call follows."""
        self._skipped_blanks()
        return self._next_call(self._beginning(self._forms, self._rest))

    def _next_call(self, mark: str | None) -> bool:
        if mark is None:
            return False
        if not mark:
            self._put_blanks_back()
            return self._go_on(self._in_text)
        self._blanks.take()
        self._rest = self._rest.removeprefix(mark)
        return self._begin_call(mark, mark) if mark in self._forms else self._go_on(self._in_text)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _go_on(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _skipped_blanks(self) -> GrowingText:
        """White space before the rest, taken out of it."""
        begun = self._rest.lstrip()
        self._blanks.add(self._rest[: len(self._rest) - len(begun)])
        self._rest = begun
        return self._blanks

    def _put_blanks_back(self) -> None:
        rest, self._rest = self._rest, ""
        self._put_ahead(rest)
        self._put_ahead(self._blanks.take())

    def _opening_behind_blanks(self, marks: tuple[str, ...]) -> str | None:
        """One of the marks, read with the white space before it; "" for none, None where more text must tell."""
        self._skipped_blanks()
        opening = self._beginning(marks, self._rest)
        if opening:
            self._blanks.take()
            self._rest = self._rest.removeprefix(opening)
        elif opening is not None:
            self._put_blanks_back()
        return opening

    def _beginning(self, marks: "tuple[str, ...] | dict[str, CallForm]", text: str) -> str | None:
        return beginning(marks, text, is_complete=self._is_complete)

    def _next_in_text(self) -> Search:
        plain = [form.opening for form in self._calls.forms if not form.is_bare]
        bare = tuple(form.opening for form in self._calls.forms if form.is_bare)
        return search((self._calls.wrapper.opening, self._answer_end, *plain), bare)

    def _read_up_to(self, marks: Search) -> tuple[str, str]:
        """What stands before the first mark, and the mark. What may be the beginning of one stays unread."""
        rest = self._rest
        start, end = marks.first(rest, is_complete=self._is_complete, is_line_blank=self._is_line_blank)
        self._rest = rest[end:]
        return rest[:start], rest[start:end]

    def _inside_of(self, call: _Call) -> tuple[str, str]:
        """What can be read of its inside, and the closing mark if that stands behind it."""
        if call.form.closing is not None:
            return self._read_up_to(search((call.form.closing,)))
        inside, self._rest = self._rest, ""
        return inside, ""

    def _show(self, text: str) -> None:
        self._parts.text.add(self._text.feed(text))
        _, line_break, line = text.rpartition("\n")
        self._is_line_blank = (self._is_line_blank or bool(line_break)) and not line.strip(" \t")

    def _begin_call(self, opening: str, before: str) -> bool:
        form = self._forms[opening]
        if form.is_bare:
            self._rest = opening + self._rest
        return self._go_on(partial(self._in_call, _Call(form, form.reader(self._tools), before)))

    def _give(self, call: _Call, pieces: list[CallPiece]) -> None:
        for piece in pieces:
            self._num_calls += piece.name is not None
            index = self._num_calls - 1
            self._parts.add(index, self._call_id(index), piece)
            call.is_told = True

    def _end_call(self, call: _Call) -> bool:
        reader = call.reader
        self._num_broken += not reader.is_whole
        if reader.text.strip():
            self._show(reader.text)
        if call.form.closing is None:
            self._rest = reader.rest + self._rest
        self._text.drop_what_follows()
        self._is_line_blank = True
        return self._go_on(self._behind_call)

    def _take_back(self, call: _Call, closing: str) -> bool:
        """No call after all: its marks are text, and what followed is read again, for a call may stand in it."""
        self._show(call.before)
        inside = call.inside.take()
        rest, self._rest = self._rest, ""
        self._put_ahead(rest)
        self._put_ahead((inside.removeprefix(call.form.opening) if call.form.is_bare else inside) + closing)
        return self._go_on(self._in_text)


_NO_THOUGHTS = ThoughtMarks("", "")
_NO_CALLS = CallMarks(())
_PIECE = 128  # characters
