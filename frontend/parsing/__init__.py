"""Answers taken apart: thoughts, calls of tools, and the text that is left.

`families.py` has a row for each way of writing these, made of what `marks.py` defines; `answer.py` reads an answer as
it comes, `json_call.py`, `tagged_call.py` and `pythonic_calls.py` what stands inside calls; `chosen.py` says which rows
a model gets. docs/adding-a-parser.md shows how to bring rows of one's own.
"""

from .answer import AnswerReader
from .chosen import Parsing, Parsings, settled
from .families import REASONING, TOOL_CALLS
from .json_call import BareJsonCall, HeadedCall, JsonCall, JsonCalls
from .marks import CallForm, CallMarks, CallPiece, CallReader, Marks, ThoughtMarks, Tools
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
