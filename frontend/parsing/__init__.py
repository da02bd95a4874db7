"""Answers taken apart: thoughts, calls of tools, and the text that is left.

`families.py` has a row for each way of writing these, `answer.py` reads an answer as it comes, `json_call.py` reads
what stands inside one call.
"""

from .answer import AnswerReader
from .families import REASONING, TOOL_CALLS, Parsing, settled

__all__ = ["REASONING", "TOOL_CALLS", "AnswerReader", "Parsing", "settled"]
