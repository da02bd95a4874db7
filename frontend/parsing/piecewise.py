"""The common part of readers of answers: states that read the text as it arrives, and the parts found so far.

A reader's state is a method that reads as far as it can and returns whether another state continues from there. Text
arrives in pieces of any length; undecided text stays unread, so the joined parts don't depend on the cuts.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import field

from ...protocol.outputs import FunctionCall, ToolCall
from ...records import dataclass
from .growing_text import GrowingText, Search, Trimmed
from .marks import CallForm, CallPiece, CallReader, Tools

_PIECE = 128  # characters


@dataclass(slots=True)
class Parts:
    """The new parts of an answer."""

    thought: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)


@dataclass(slots=True)
class NewParts:
    """The new parts in pieces, while they are read."""

    thought: GrowingText = field(default_factory=GrowingText)
    text: GrowingText = field(default_factory=GrowingText)
    calls: list[tuple[ToolCall, GrowingText]] = field(default_factory=list)  # with the arguments of each

    def add(self, index: int, call_id: str, piece: CallPiece) -> None:
        """Merge pieces of one call; its id comes with its name."""
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
class OpenCall:
    """The call being read, and its text in case it is none."""

    form: CallForm
    reader: CallReader
    before: str  # its marks as written
    inside: GrowingText = field(default_factory=GrowingText)  # the text after them, as long as it can still become text
    is_told: bool = False


class PiecewiseReader:
    """Reads one answer."""

    def __init__(self, tools: Tools, call_id: Callable[[int], str]) -> None:
        """`call_id` returns the id of the call with this index."""
        self._tools = tools
        self._call_id = call_id
        self._rest = ""  # not read yet; short, since every step inspects or copies it
        self._ahead: deque[str] = deque()  # the text after it, in pieces
        self._blanks = GrowingText()  # white space before it, to be interpreted by what follows
        self._is_last = False  # nothing will follow
        self._parts = NewParts()
        self._thought = Trimmed(drops_beginning=True)
        self._text = Trimmed()
        self._num_calls = 0
        self._num_broken = 0
        self._state: Callable[[], bool] = self._in_text

    @property
    def has_whole_calls(self) -> bool:
        """There are calls, and none has incomplete arguments."""
        return self._num_calls > 0 and self._num_broken == 0

    def feed(self, text: str, *, is_last: bool = False) -> Parts:
        """The parts that this text adds; with `is_last`, also text that was held back."""
        self._is_last = is_last
        self._parts = NewParts()
        if len(text) <= _PIECE:
            self._rest += text
        else:
            self._put_ahead(text)
        while True:
            while self._state():
                pass
            if not self._ahead:
                break
            self._rest += self._ahead.popleft()
        if is_last:
            self._parts.text.add(self._text.ending())
        return self._parts.joined()

    def _in_text(self) -> bool:
        raise NotImplementedError

    # --- steps ---------------------------------------------------------------------------------------------------

    @property
    def _is_complete(self) -> bool:
        """Nothing will follow the rest."""
        return self._is_last and not self._ahead

    def _go_on(self, state: Callable[[], bool]) -> bool:
        self._state = state
        return True

    def _put_ahead(self, text: str) -> None:
        """Read this text next, before the text that is ahead already."""
        self._ahead.extendleft(text[start : start + _PIECE] for start in reversed(range(0, len(text), _PIECE)))

    def _put_back(self, text: str) -> None:
        """Read this text next, before the rest."""
        rest, self._rest = self._rest, ""
        self._put_ahead(rest)
        self._put_ahead(text)

    def _skipped_blanks(self) -> GrowingText:
        """Remove and return white space before the rest."""
        begun = self._rest.lstrip()
        self._blanks.add(self._rest[: len(self._rest) - len(begun)])
        self._rest = begun
        return self._blanks

    def _read_up_to(self, marks: Search, *, is_line_blank: bool = True) -> tuple[str, str]:
        """The text before the first mark, and the mark. The possible beginning of a mark stays unread."""
        rest = self._rest
        start, end = marks.first(rest, is_complete=self._is_complete, is_line_blank=is_line_blank)
        self._rest = rest[end:]
        return rest[:start], rest[start:end]

    def _show(self, text: str) -> None:
        self._parts.text.add(self._text.feed(text))

    def _give(self, call: OpenCall, pieces: list[CallPiece]) -> None:
        for piece in pieces:
            self._num_calls += piece.name is not None
            index = self._num_calls - 1
            self._parts.add(index, self._call_id(index), piece)
            call.is_told = True
