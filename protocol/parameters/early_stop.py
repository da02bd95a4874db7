"""When an answer is ended because it repeats itself (`EarlyStop`): too many tokens in a row without any doubt.

A model that has fallen into a loop chooses every token with nearly all of its probability. The engine counts them.
"""

import math
import operator
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

SENTENCE = (
    'must be a dict such as {"window_size": 3000, "threshold": 0.99}: a whole number of tokens, 1 or more, and a '
    "probability of more than 0 and at most 1; with enable_early_stop=False it is off"
)


class EarlyStop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ends an answer when `window_size` tokens in a row had at least the probability `threshold`."""

    enable_early_stop: bool = True
    strategy: Literal["repetition"] = "repetition"
    window_size: int = 3000
    threshold: float = 0.99

    @property
    def least_logprob(self) -> float:
        """The least log-probability of a token that counts."""
        return math.log(self.threshold)


def as_early_stop(value: Any) -> EarlyStop:
    """Make one of what a person wrote; raises ValueError or TypeError."""
    if isinstance(value, EarlyStop):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, Mapping):
        raise TypeError
    wanted = EarlyStop(**value)
    window_size, threshold = operator.index(wanted.window_size), float(wanted.threshold)
    is_right = window_size >= 1 and 0 < threshold <= 1 and wanted.strategy == "repetition"
    if not is_right or not isinstance(wanted.enable_early_stop, bool):
        raise ValueError
    return EarlyStop(enable_early_stop=wanted.enable_early_stop, window_size=window_size, threshold=threshold)
