"""What one text adds to an answer: new parts of its thought, its text and its calls."""

from dataclasses import dataclass, field

from ...protocol.outputs import FunctionCall, ToolCall
from .growing_text import GrowingText
from .marks import CallPiece


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
