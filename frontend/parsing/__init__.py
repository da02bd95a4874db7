"""Parses answers: separates thoughts and tool calls from the text.

`families.py` has a row for each format, made from the types in `marks.py`; `parser_choice.py` chooses a model's rows.
`answer.py` reads a streamed answer, `channel_answer.py` one that consists of messages in channels; `calls/` has readers
for the inside of calls. docs/adding-a-parser.md shows how to add your own rows.
"""

from .answer import AnswerReader
from .calls.json_call import BareJsonCall, HeadedCall, JsonCall, JsonCalls
from .calls.message_call import MessageCall
from .calls.tagged_call import TaggedCall
from .families import REASONING, TOOL_CALLS
from .marks import (
    CallForm,
    CallMarks,
    CallPiece,
    CallReader,
    Channels,
    HeadedBody,
    JsonBody,
    Marks,
    Tags,
    ThoughtMarks,
    Tools,
)
from .parser_choice import Parsing, Parsings, settled
from .piecewise import PiecewiseReader
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
    "Channels",
    "HeadedBody",
    "HeadedCall",
    "JsonBody",
    "JsonCall",
    "JsonCalls",
    "Marks",
    "MessageCall",
    "Parsing",
    "Parsings",
    "PiecewiseReader",
    "TaggedCall",
    "Tags",
    "ThoughtMarks",
    "ThoughtTokens",
    "Tools",
    "settled",
]
