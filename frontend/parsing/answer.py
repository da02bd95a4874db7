"""Separates a streamed answer into thought, text and tool calls.

    start ──► thought ──► text ──► call ──► behind the call
                           ▲ └──► wrapper ───▲ │
                           └───────────────────┘

A thought can only begin an answer. Text that begins like a call but turns out to be none is text. The joined parts
don't depend on how the answer was cut into pieces: decisions are made only when more text can't change them, so the
beginning of a mark is held back, and so is white space, which is dropped around thoughts and calls.
"""

from collections.abc import Callable
from functools import partial

from .growing_text import Search, beginning, search
from .marks import CallForm, CallMarks, ThoughtMarks, Tools
from .piecewise import OpenCall, PiecewiseReader


class AnswerReader(PiecewiseReader):
    """Reads one answer. If `thoughts` or `calls` is None, their marks are ordinary text."""

    def __init__(
        self,
        thoughts: ThoughtMarks | None,
        calls: CallMarks | None,
        tools: Tools,
        call_id: Callable[[int], str],  # of the call with this index
        *,
        is_thinking: bool = False,  # the answer begins within its thought
    ) -> None:
        super().__init__(tools, call_id)
        self._thoughts = thoughts or _NO_THOUGHTS
        self._calls = calls or _NO_CALLS
        self._is_thinking = is_thinking
        self._is_line_blank = True  # whether the text's last line is blank so far
        self._answer_end = ""  # a mark that is left out of the text
        self._forms = {form.opening: form for form in self._calls.forms}
        self._state = self._in_start if thoughts else self._in_text

    # --- states: thought and text --------------------------------------------------------------------------------

    def _in_start(self) -> bool:
        """Nothing but white space so far. A model may repeat the opening mark that ends the prompt."""
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
        """The answer may be enclosed in marks of its own."""
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
        text, mark = self._read_up_to(self._next_in_text(), is_line_blank=self._is_line_blank)
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
        """After the mark that opens a list of calls; if no call follows, it is text."""
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

    def _in_call(self, call: OpenCall) -> bool:
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
        """Another call may follow at once, or the list of calls may end."""
        self._skipped_blanks()
        separator = self._calls.separator
        mark = self._beginning((self._calls.wrapper.closing, separator, *self._forms), self._rest)
        if not mark or mark != separator:
            return self._next_call(mark)
        self._blanks.add(mark)
        self._rest = self._rest.removeprefix(mark)
        return self._go_on(self._behind_separator)

    def _behind_separator(self) -> bool:
        """After a separator, which is text unless a call follows."""
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

    def _put_blanks_back(self) -> None:
        self._put_back(self._blanks.take())

    def _opening_behind_blanks(self, marks: tuple[str, ...]) -> str | None:
        """One of the marks, read with the white space before it; "" for none, None if more text is needed."""
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

    def _inside_of(self, call: OpenCall) -> tuple[str, str]:
        """The readable part of the call's inside, and the closing mark if it follows."""
        if call.form.closing is not None:
            return self._read_up_to(search((call.form.closing,)))
        inside, self._rest = self._rest, ""
        return inside, ""

    def _show(self, text: str) -> None:
        super()._show(text)
        _, line_break, line = text.rpartition("\n")
        self._is_line_blank = (self._is_line_blank or bool(line_break)) and not line.strip(" \t")

    def _begin_call(self, opening: str, before: str) -> bool:
        form = self._forms[opening]
        if form.is_bare:
            self._rest = opening + self._rest
        return self._go_on(partial(self._in_call, OpenCall(form, form.reader(self._tools), before)))

    def _end_call(self, call: OpenCall) -> bool:
        reader = call.reader
        self._num_broken += not reader.is_whole
        if reader.text.strip():
            self._show(reader.text)
        if call.form.closing is None:
            self._rest = reader.rest + self._rest
        self._text.drop_what_follows()
        self._is_line_blank = True
        return self._go_on(self._behind_call)

    def _take_back(self, call: OpenCall, closing: str) -> bool:
        """Treat it as no call: its marks are text, and the following text is read again, for it may contain a call."""
        self._show(call.before)
        inside = call.inside.take()
        self._put_back((inside.removeprefix(call.form.opening) if call.form.is_bare else inside) + closing)
        return self._go_on(self._in_text)


_NO_THOUGHTS = ThoughtMarks("", "")
_NO_CALLS = CallMarks(())
