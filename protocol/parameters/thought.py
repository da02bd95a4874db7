"""The marks of a request's thought as token ids, for code that counts its tokens, ends it, or waits for its end.

The front end, which has the tokenizer and the table of parsers, fills it in; the engine compares integers.
"""

import msgspec


class Thought(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One request's thought, if the format of its model's thoughts is known."""

    is_open: bool  # the prompt ends within the thought, so the answer's first token belongs to it
    openings: list[list[int]]  # any of these at the answer's beginning opens it; empty: no further thought
    closings: list[list[int]]  # any of these, anywhere after the opening, ends it
    forced: list[int]  # written to end it when its limit is reached
