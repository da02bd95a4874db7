"""The options about pictures and videos: how many a prompt may have, and what their processor is told."""

import json
import operator
from collections.abc import Mapping
from typing import Any

LIMITS_SENTENCE = 'must be a dict such as {"image": 16, "video": 2}, with whole numbers, 0 or more'
PROCESSOR_SENTENCE = 'must be a dict of what the model\'s processor is told, such as {"max_pixels": 1003520}'
_KINDS = ("image", "video", "audio")  # of which no model here hears the last


def as_limits(value: Any) -> dict[str, int]:
    """The limits as a person wrote them; raises ValueError or TypeError."""
    limits = {name: operator.index(count) for name, count in _mapping(value).items()}
    if not limits.keys() <= set(_KINDS) or any(count < 0 for count in limits.values()):
        raise ValueError
    return limits


def as_json_dict(value: Any) -> dict[str, Any]:
    """A copy as plain JSON, since it travels between processes; the worker or the processor checks the names."""
    copied: dict[str, Any] = json.loads(json.dumps(dict(_mapping(value)), allow_nan=False))
    return copied


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError
    return value
