"""Ends answers that repeat themselves (`EarlyStop`), by one of two signs.

"repetition": a model that has fallen into a loop mostly chooses every token with nearly all of its probability. The
workers report this and the engine counts such tokens. "cycle": the same few tokens repeat, however likely they are, as
under a grammar that never lets the answer end. The engine sees this by itself, so it costs the workers nothing.
"""

import math
import operator
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from ..fields.rules import MOST

SENTENCE = (
    'must be a dict such as {"window_size": 3000, "threshold": 0.99}: a whole number of tokens, 1 or more, and a '
    'probability of more than 0 and at most 1; with strategy="cycle" that many tokens must be a short cycle instead; '
    "with enable_early_stop=False it is off"
)
Strategy = Literal["repetition", "cycle"]


class EarlyStop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ends an answer when `window_size` tokens in a row had at least the probability `threshold`, or, with the strategy
    "cycle", when those tokens repeat a cycle at least eight times."""

    enable_early_stop: bool = True
    strategy: Strategy = "repetition"
    window_size: int = 3000
    threshold: float = 0.99

    @property
    def least_logprob(self) -> float | None:
        """The least log-probability of a token that counts; None if that doesn't matter."""
        is_watched = self.enable_early_stop and self.strategy == "repetition"
        return math.log(self.threshold) if is_watched else None

    @property
    def cycle_window(self) -> int | None:
        """How many tokens must be one cycle; None if cycles don't matter."""
        return self.window_size if self.enable_early_stop and self.strategy == "cycle" else None


# For interactive answers, over HTTP and in a shell: 768 tokens that repeat at most 96 tokens eight times.
CYCLE_GUARD = EarlyStop(strategy="cycle", window_size=768)


def as_early_stop(value: Any) -> EarlyStop:
    """Convert a caller's value; raises ValueError or TypeError."""
    if value is False:
        value = {"enable_early_stop": False}
    if isinstance(value, EarlyStop):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, Mapping):
        raise TypeError
    wanted = EarlyStop(**value)
    window_size, threshold = operator.index(wanted.window_size), float(wanted.threshold)
    is_right = 1 <= window_size <= MOST and 0 < threshold <= 1 and wanted.strategy in get_args(Strategy)
    if not is_right or not isinstance(wanted.enable_early_stop, bool):
        raise ValueError
    return msgspec.structs.replace(wanted, window_size=window_size, threshold=threshold)
