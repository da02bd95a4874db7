"""The rules of sampling parameters that are more than a range: lists, tables, and numbers with a sentence of their own.

Each is used on its field in `SamplingParams`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..fields.rules import MOST, Rule, between, integer, ranged, real, text
from .early_stop import SENTENCE as EARLY_STOP_SENTENCE
from .early_stop import as_early_stop

MAX_LOGPROBS = 20
_MOST_ITEMS = 1 << 20


def _strings(value: Any) -> list[str]:
    return [text(item) for item in ([value] if isinstance(value, str) else _items(value))]


def _integers(value: Any) -> list[int]:
    return [integer(item) for item in _items(value)] if isinstance(value, Sequence) else [integer(value)]


def _items(value: Any) -> Any:
    """The list itself; raises for one that nobody writes, such as `range(10**9)`, before iterating over it."""
    if len(value) > _MOST_ITEMS:
        raise ValueError
    return value


def _as_it_arrives(value: Any) -> dict[str, Any]:
    """The dict as the worker will get it; raises for values that can't be sent."""
    found: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(dict(value)), type=dict[str, Any])
    return found


SHARE = ranged(real, "must be more than 0 and at most 1", gt=0, le=1)
FACTOR = ranged(real, "must be a finite number above 0", gt=0)
TOP_K = ranged(integer, "must be a whole number; 0 or -1 is off", ge=-1, le=MOST)
PRIORITY = ranged(integer, "must be a whole number", ge=-MOST, le=MOST)
SEED = ranged(integer, "must be a whole number from 0 to 2**63 - 1", ge=0, le=2**63 - 1)
RANKED = ranged(integer, f"must be 0 to {MAX_LOGPROBS}, or -1 for the whole vocabulary", ge=-1, le=MAX_LOGPROBS)

_ID = ranged(integer, "must be a token id", ge=0, le=MOST)
_BIAS = between(-100, 100)
TOKEN_IDS = Rule(
    _integers, lambda ids: all(map(_ID.holds, ids)), "must be a token id or a list of them", bounds=_ID.bounds
)
ID_LISTS = Rule(
    lambda value: [_integers(item) for item in _items(value)],
    lambda words: all(words) and all(_ID.holds(item) for word in words for item in word),
    "must be a list of lists of token ids, none of them empty",
)
BIASES = Rule(
    lambda value: {int(item): real(bias) for item, bias in dict(value).items()},
    lambda biases: all(_ID.holds(item) and _BIAS.holds(bias) for item, bias in biases.items()),
    f"must be {{token id: number from {_BIAS.bounds['ge']} to {_BIAS.bounds['le']}}}",
    bounds=_BIAS.bounds,
)
STOP = Rule(_strings, all, "must be a string or a list of strings, none of them empty")
WORDS = Rule(_strings, all, "must be a list of strings, none of them empty")
EARLY_STOP = Rule(as_early_stop, lambda value: True, EARLY_STOP_SENTENCE)
PLAIN = Rule(
    _as_it_arrives,
    lambda value: True,
    "must be {name: value}, of plain values such as numbers, strings, lists and dicts",
)
