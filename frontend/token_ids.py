"""Token ids as callers give them, packed for the engine. Knows nothing of prompts beside them."""

from collections.abc import Sequence

from ..protocol.errors import RequestError
from ..protocol.messages import column
from ..protocol.rules import shown


def packed_ids(ids: Sequence[int], vocab_size: int) -> bytes:
    """Raises `RequestError` for what is no list of ids of this vocabulary; none at all are an empty column."""
    if not len(ids):
        return b""
    try:
        if bool in set(map(type, ids)):  # True would be the id 1
            raise TypeError
        low, high = min(ids), max(ids)
        if low < 0 or high >= vocab_size:
            wrong = shown(low if low < 0 else high)
            raise RequestError(f"Token id {wrong} is not in the vocabulary (0 to {vocab_size - 1}).")
        return column(ids)
    except (TypeError, ArithmeticError):  # Decimal has numbers of its own that compare with none
        raise RequestError("Prompt token ids must be whole numbers.") from None
