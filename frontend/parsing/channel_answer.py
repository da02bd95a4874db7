"""Separates a streamed answer made of messages in channels into thought, text and tool calls.

    header ──► thought, text or call ──► behind the message ──► header …

A header gives its message's kind: a call if it names a recipient, otherwise a thought or text, by its channel. There
may be any number of messages in any order; each becomes a paragraph. An impossible header is text, or continues the
message around it; a header without an end counts as far as it can be separated from the message's text.
"""

from collections.abc import Callable
from dataclasses import field
from functools import partial

from ...records import dataclass
from .channel_header import Header, HeaderReader, NoHeader, prompt_end
from .growing_text import GrowingText, search
from .marks import CallMarks, Channels, ThoughtMarks, Tools
from .piecewise import OpenCall, PiecewiseReader


@dataclass(slots=True)
class _Attempt:
    """A header that is being read."""

    reader: HeaderReader
    num_begun: int = 0  # characters before the answer's own
    text: GrowingText = field(default_factory=GrowingText)  # the answer's own


class ChannelReader(PiecewiseReader):
    """Reads one answer. Without `thoughts`, everything but calls is text as written; without `calls`, calls are,
    too."""

    def __init__(
        self,
        channels: Channels,
        thoughts: ThoughtMarks | None,
        calls: CallMarks | None,
        tools: Tools,
        call_id: Callable[[int], str],
        prompt: str,  # its end, in which a header may have begun
    ) -> None:
        super().__init__(tools, call_id)
        self._channels = channels
        self._hides_headers = thoughts is not None
        self._form = calls.forms[0] if calls else None
        ending = prompt_end(channels, prompt)
        if ending.header is not None:
            self._begin_message(ending.header, "")
        elif ending.begun:
            self._expect_header(begun=ending.begun)

    # --- states: bodies of messages ------------------------------------------------------------------------------

    def _in_text(self) -> bool:
        return self._in_body(self._in_text, self._show, self._channels.ends if self._hides_headers else ())

    def _in_thought(self) -> bool:
        return self._in_body(self._in_thought, self._think, self._channels.ends)

    def _in_body(self, state: Callable[[], bool], add: Callable[[str], None], ends: tuple[str, ...]) -> bool:
        body, mark = self._read_up_to(search((self._channels.start, self._channels.channel, *ends)))
        add(body)
        if not mark:
            return False
        if mark in ends:
            return self._expect_header(mark if state == self._in_text else "")
        self._put_back(mark)
        return self._go_on(partial(self._in_header, _Attempt(HeaderReader(self._channels)), mark, add, state))

    def _think(self, text: str) -> None:
        self._parts.thought.add(self._thought.feed(text))

    def _in_call(self, call: OpenCall) -> bool:
        reader = call.reader
        ends = self._channels.ends
        inside, mark = self._read_up_to(search((self._channels.start, self._channels.channel, *ends)))
        if not call.is_told:
            call.inside.add(inside)
        self._give(call, reader.feed(inside))
        is_over = bool(mark) or self._is_complete
        if is_over:
            self._give(call, reader.close(is_cut=mark not in ends))
        if not is_over and not reader.is_text:
            return False
        return self._end_call(call, mark) if call.is_told else self._take_back(call, mark)

    def _end_call(self, call: OpenCall, mark: str) -> bool:
        self._num_broken += not call.reader.is_whole
        self._text.drop_what_follows()
        if mark not in self._channels.ends:
            self._put_back(mark)
        return self._expect_header()

    def _take_back(self, call: OpenCall, mark: str) -> bool:
        """Treat it as no call."""
        self._show(call.before + call.inside.take())
        self._put_back(mark)
        return self._go_on(self._in_text)

    # --- states: headers -----------------------------------------------------------------------------------------

    def _expect_header(self, mark: str = "", begun: str | None = None) -> bool:
        """Expect a message: a header, or one that lacks its first marks.

        `mark` ended the text before it; `begun` precedes the header, in the prompt or by the format's rules.
        """
        begun = self._channels.start + self._channels.role if begun is None else begun
        begun += " "  # the answer continues with another word
        attempt = _Attempt(HeaderReader(self._channels, begun), len(begun))
        return self._go_on(partial(self._behind_message, attempt, mark))

    def _behind_message(self, attempt: "_Attempt", mark: str) -> bool:
        found = self._found(attempt)
        if isinstance(found, NoHeader):
            self._show(mark)
            return self._go_on(self._in_text)
        return found is not None and self._begin_message(*found)

    def _in_header(self, attempt: "_Attempt", mark: str, add: Callable[[str], None], body: Callable[[], bool]) -> bool:
        """Read a mark: it opens a header, or belongs to the body around it."""
        found = self._found(attempt)
        if isinstance(found, NoHeader):
            self._rest = self._rest.removeprefix(mark)
            add(mark)
            return self._go_on(body)
        return found is not None and self._begin_message(*found)

    def _found(self, attempt: "_Attempt") -> "tuple[Header, str] | NoHeader | None":
        """The header and the answer's text of it; if there is none, all of it is unread again."""
        text, self._rest = self._rest, ""
        attempt.text.add(text)
        found = attempt.reader.feed(text, is_complete=self._is_complete)
        if found is None:
            return None
        written = attempt.text.take()
        end = max(found.end - attempt.num_begun, 0) if isinstance(found, Header) else 0
        self._put_back(written[end:])
        self._rest = self._ahead.popleft() if self._ahead else ""
        return (found, written[:end]) if isinstance(found, Header) else found

    def _begin_message(self, found: Header, written: str) -> bool:
        is_of_model = found.role in ("", self._channels.role)
        if is_of_model and found.recipient and self._form is not None:
            call = OpenCall(self._form, self._form.reader(self._tools), written)
            self._give(call, call.reader.feed(found.recipient + " "))
            return self._go_on(partial(self._in_call, call))
        if not self._hides_headers or not is_of_model or found.recipient:
            self._show(written)
            return self._go_on(self._in_text)
        if found.channel in self._channels.thoughts:
            self._thought.begin_paragraph()
            return self._go_on(self._in_thought)
        self._text.begin_paragraph()
        return self._go_on(self._in_text)
