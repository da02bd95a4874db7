"""The rules of a tree's options: each converts a value to the field's type, or raises with the rule's message.

Each is used on its field in `EngineConfig`. Options come from shells and files, too: a whole number may be written 8.0,
a path may be an object, a dtype may be torch's own.
"""

import json
import operator
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ..fields.rules import FLAG, Rule
from ..parameters.early_stop import SENTENCE as EARLY_STOP_SENTENCE
from ..parameters.early_stop import as_early_stop
from .kv_events import SENTENCE as KV_EVENTS_SENTENCE
from .kv_events import as_kv_events
from .quantization import KINDS as QUANTIZATION_KINDS
from .quantization import SENTENCE as QUANTIZATION_SENTENCE
from .quantization import as_quantization
from .speculation import SENTENCE as SPECULATION_SENTENCE
from .speculation import as_speculation

# Limits for pictures and videos in a prompt, and options for their processor.
LIMITS_SENTENCE = 'must be a dict such as {"image": 16, "video": 2}, with whole numbers, 0 or more'
PROCESSOR_SENTENCE = 'must be a dict of what the model\'s processor is told, such as {"max_pixels": 1003520}'
_KINDS = ("image", "video", "audio")  # no model here accepts audio


def as_limits(value: Any) -> dict[str, int]:
    """The limits as given by the caller; raises ValueError or TypeError."""
    limits = {name: operator.index(count) for name, count in _mapping(value).items()}
    if not limits.keys() <= set(_KINDS) or any(count < 0 for count in limits.values()):
        raise ValueError
    return limits


def as_json_dict(value: Any) -> dict[str, Any]:
    """A copy as plain JSON, since it is sent between processes; the worker or the processor checks the names."""
    copied: dict[str, Any] = json.loads(json.dumps(dict(_mapping(value)), allow_nan=False))
    return copied


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError
    return value


# FastDeploy's own processors, whose arguments are fields of a request here (`frontend/requests/settled_params.py`);
# nothing is loaded for them.
BUILT_IN_PROCESSORS = ("ThinkingBudgetLogitsProcessor", "LogitBiasLogitsProcessor")

CONNECTS = ("auto", "require", "start", "never")
_MOST_RANKS = 256  # models with more attention heads aren't known (Falcon-180B has 232)
_DTYPES = ("auto", "float32", "float16", "bfloat16")
_DTYPE_NAMES = {"fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}


def _rule(convert: Callable[[Any], Any], sentence: str, choices: tuple[Any, ...] = ()) -> Rule:
    return Rule(convert, lambda value: True, sentence, choices)


def size(value: Any) -> int:
    """Bytes from an int, or from "512MiB", "4GiB", "4GB"."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?)(i?)b?\s*", value.lower())
        if not found:
            raise ValueError
        base = 1024 if found[3] or not found[2] else 1000
        value = int(float(found[1]) * base ** " kmgt".index(found[2] or " "))
    return _positive(value)


def _whole(low: int, high: int = 2**63 - 1) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or int(value) != value or not low <= value <= high:
            raise ValueError
        return int(value)

    return convert


_positive = _whole(1)


def _context(value: Any) -> int:
    """A context length; -1 is FastDeploy's value for the model's own."""
    return -1 if value == -1 and not isinstance(value, bool) else _positive(value)


def _whole_list(least: int) -> Callable[[Any], list[int]]:
    return lambda value: [_whole(least)(item) for item in ([value] if isinstance(value, int) else value)]


def _devices(value: Any) -> list[int | list[int]]:
    """Numbers, or a list of them for each tree."""
    if isinstance(value, int):
        value = [value]
    items = list(value)
    if not any(isinstance(each, (list, tuple, range)) for each in items):
        return [_whole(0)(each) for each in items]
    if not all(items):
        raise ValueError
    return [[_whole(0)(number) for number in each] for each in items]


def _fraction(value: Any) -> float:
    if isinstance(value, bool) or not 0 < float(value) <= 1:
        raise ValueError
    return float(value)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= float(value) < float("inf"):
        raise ValueError
    return float(value)


def _some(value: Any) -> float:
    if not (amount := _amount(value)):
        raise ValueError
    return amount


def _text(value: Any) -> str:
    text: str = os.fspath(value)
    str.encode(text)  # raises for text that can't be sent as UTF-8
    if "\0" in text:
        raise ValueError
    return text


def _path(value: Any) -> str:
    if not (text := _text(value)):
        raise ValueError
    return text


def _names(value: Any) -> list[str] | None:
    names = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(name, str) for name in names):
        raise TypeError
    return [name for name in names if name.rpartition(":")[2] not in BUILT_IN_PROCESSORS] or None


def _connect(value: Any) -> str:
    text: str = os.fspath(value)
    if text not in CONNECTS and os.sep not in text:
        raise ValueError
    return text


def _determinism(value: Any) -> bool | Literal["portable"]:
    return "portable" if value == "portable" else FLAG.convert(value)


def _dtype(value: Any) -> str:
    name = _DTYPE_NAMES.get(str(value).removeprefix("torch."), str(value).removeprefix("torch."))
    if name not in _DTYPES:
        raise ValueError
    return name


def one_of(*choices: Any) -> Rule:
    def convert(value: Any) -> Any:
        if value not in choices:
            raise ValueError
        return value

    return _rule(convert, _among(choices), choices)


def _among(choices: tuple[Any, ...]) -> str:
    return "must be one of " + ", ".join(map(str, choices))


COUNT = _rule(_positive, "must be a whole number, 1 or more")
AMOUNT = _rule(_whole(0), "must be a whole number, 0 or more")
RANKS = _rule(
    _whole(1, _MOST_RANKS),
    f"must be a whole number from 1 to {_MOST_RANKS} that divides the model's attention heads, which the ranks share",
)
CONTEXT = _rule(_context, "must be a whole number, 1 or more; None or -1 is the model's own")
CARDS = _rule(_devices, "must be a list of numbers (cards, or NUMA nodes), or a list of such lists, one for each tree")
PORT = _rule(_whole(1, 65535), "must be a port, 1 to 65535")
COUNTS = _rule(_whole_list(1), "must be a list of whole numbers, 1 or more")
SIZE = _rule(size, 'must be bytes, or text such as "4GiB"')
FRACTION = _rule(_fraction, "must be more than 0 and at most 1")
GIB = _rule(_amount, "must be GiB, 0 or more")
SECONDS = _rule(_amount, "must be seconds, 0 or more; 0 waits forever")
TTL = _rule(_some, "must be seconds, more than 0; unset, a prefix is kept as long as there is room")
TEXT = _rule(_text, "must be text or a path, in UTF-8")
PATH = _rule(_path, "must be a path, in UTF-8")
FAMILY = _rule(_text, "must be auto, none or a family's name")
PROCESSORS = _rule(_names, "must be names of entry points in the group penstock.logits_processors")
MEDIA_LIMITS = _rule(as_limits, LIMITS_SENTENCE)
PROCESSOR = _rule(as_json_dict, PROCESSOR_SENTENCE)
ROPE = _rule(as_json_dict, 'must be a dict such as {"rope_type": "yarn", "factor": 4.0}')
EARLY_STOP = _rule(as_early_stop, EARLY_STOP_SENTENCE)
KV_EVENTS = _rule(as_kv_events, KV_EVENTS_SENTENCE)
SPECULATION = _rule(as_speculation, SPECULATION_SENTENCE)
DTYPE = _rule(_dtype, _among(_DTYPES), _DTYPES)
QUANTIZATION = _rule(as_quantization, QUANTIZATION_SENTENCE, QUANTIZATION_KINDS)
DETERMINISM = _rule(_determinism, "must be True, False or portable", (True, False, "portable"))
KV_DTYPE = one_of("auto", "fp32", "fp16", "bf16", "int8", "uint4")
LOGPROBS_MODE = one_of("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")
LOGPROBS_PER_TOKEN = _rule(_whole(-1), "must be a whole number, 0 or more, or -1 for no limit")
LOAD_FORMAT = one_of("auto", "safetensors", "dummy", "stand-in")
RUNNER = one_of("auto", "generate", "pooling")
BLOCK_SIZE = one_of(16, 32, 64, 128)
DEVICE = one_of("auto", "cpu", "cuda")
CONNECT = _rule(_connect, "must be auto, require, start, never, or the path of a daemon's socket", CONNECTS)
