"""What a request's thought looks like as token ids: for whom counts its tokens, ends it, or waits for its end.

The front end, which has the tokenizer and the parsers' table, fills it in; the engine compares integers.
"""

import msgspec


class Thought(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One request's, where its model's way of thinking is known."""

    is_open: bool  # the prompt ends within the thought, so the answer's first token belongs to it
    openings: list[list[int]]  # any of these at the answer's beginning opens it; none: this answer has no other thought
    closings: list[list[int]]  # any of these, anywhere behind the opening, ends it
    forced: list[int]  # what is written to end it where its tokens are used up
