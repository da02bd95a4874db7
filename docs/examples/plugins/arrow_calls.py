"""A family of models that writes thoughts between `#` and `##`, and calls as lines: `=> weather city=Paris days=2`.

For the options reasoning_parser_plugin and tool_parser_plugin; docs/adding-a-parser.md goes through it.
"""

import json

from penstock.frontend.parsing import CallForm, CallMarks, CallPiece, ThoughtMarks, Tools


class ArrowCall:
    """Reads what stands between `=> ` and the end of the line: a name, then `key=value`, with a blank before each."""

    text = ""  # what stands inside beside the call: nothing here
    rest = ""  # what follows the call: the closing mark says where it ends
    is_over = False

    def __init__(self, tools: Tools) -> None:
        self.tools = tools  # the schema of each argument of each tool, should a value's type matter
        self.unread = ""
        self.name: str | None = None
        self.num_arguments = 0
        self.is_whole = False

    @property
    def is_text(self) -> bool:
        """No call any more: a blank in front of the name."""
        return self.name is None and self.unread.startswith(" ")

    def feed(self, text: str) -> list[CallPiece]:
        self.unread += text
        if self.is_text:
            return []
        # A word is told once the blank behind it is there, however the text was cut into pieces.
        *words, self.unread = self.unread.split(" ")
        return [piece for word in words for piece in self.told(word)]

    def close(self, *, is_cut: bool) -> list[CallPiece]:
        if is_cut or self.is_text or not (self.name or self.unread):
            return []
        pieces = self.told(self.unread)
        self.is_whole = True
        return [*pieces, CallPiece(None, "}" if self.num_arguments else "{}")]

    def told(self, word: str) -> list[CallPiece]:
        if self.name is None:
            self.name = word
            return [CallPiece(word, "")]
        if not word:
            return []
        key, _, value = word.partition("=")
        self.num_arguments += 1
        before = "{" if self.num_arguments == 1 else ", "
        return [CallPiece(None, f"{before}{json.dumps(key)}: {json.dumps(value)}")]


REASONING = {"arrow": ThoughtMarks("#", "##")}
TOOL_CALLS = {"arrow": CallMarks((CallForm("=> ", ArrowCall, "\n"),))}
