"""Checks the token ids of a prompt and packs them for the engine."""

from collections.abc import Sequence

from ...protocol.errors import RequestError
from ...protocol.fields.rules import shown
from ...protocol.messages import MemoryPlan, column


def packed_prompt(ids: Sequence[int], plan: MemoryPlan) -> bytes:
    """Raises `RequestError` for what can be no prompt of this model. Of a very long one only the length is checked."""
    try:
        return _packed_prompt(ids, plan)
    except RequestError:
        raise
    except Exception:  # of a value whose own methods fail; Decimal has numbers of its own that compare with none
        raise RequestError("Prompt token ids must be whole numbers.") from None


def _packed_prompt(ids: Sequence[int], plan: MemoryPlan) -> bytes:
    if not len(ids):
        raise RequestError("The prompt is empty: it has no tokens.")
    if len(ids) >= plan.max_model_len:
        raise RequestError(
            f"The prompt has {len(ids):,} tokens, and max_model_len={plan.max_model_len:,} must hold it and at least "
            "one output token. Shorten it or raise max_model_len."
        )
    if bool in set(map(type, ids)):  # True would be the id 1
        raise TypeError
    low, high = min(ids), max(ids)
    if low < 0 or high >= plan.vocab_size:
        wrong = shown(low if low < 0 else high)
        raise RequestError(f"Token id {wrong} is not in the vocabulary (0 to {plan.vocab_size - 1}).")
    return column(ids)
