"""Parses answers: separates thoughts and tool calls from the text.

`families.py` has a row for each format, made of what `marks.py` defines; `parser_choice.py` chooses a model's rows.
`answer.py` reads an answer as it comes, `json_call.py`, `tagged_call.py` and `pythonic_calls.py` the inside of calls.
docs/adding-a-parser.md shows how to add rows of one's own.
"""

from .answer import AnswerReader
from .families import REASONING, TOOL_CALLS
from .json_call import BareJsonCall, HeadedCall, JsonCall, JsonCalls
from .marks import CallForm, CallMarks, CallPiece, CallReader, Marks, ThoughtMarks, Tools
from .parser_choice import Parsing, Parsings, settled
from .tagged_call import TaggedCall, Tags
from .thought_tokens import ThoughtTokens

__all__ = [
    "REASONING",
    "TOOL_CALLS",
    "AnswerReader",
    "BareJsonCall",
    "CallForm",
    "CallMarks",
    "CallPiece",
    "CallReader",
    "HeadedCall",
    "JsonCall",
    "JsonCalls",
    "Marks",
    "Parsing",
    "Parsings",
    "TaggedCall",
    "Tags",
    "ThoughtMarks",
    "ThoughtTokens",
    "Tools",
    "settled",
]
