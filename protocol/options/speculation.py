"""The option `speculative_config`: how a tree drafts tokens of its answers, of which one step then checks several.

    {"method": "ngram", "num_speculative_tokens": 4}

None and True let Penstock decide, False turns drafts off, and a method may be given by its name alone. A draft is
accepted exactly if it is the token that would have been sampled without it, so nothing here changes an answer. Keys of
other engines are in `foreign_speculation.py`.
"""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from ..errors import ConfigError
from ..fields.described import described, rules_of
from ..fields.rules import MOST, Rule, at_least, between, integer, json_value, ranged, real, shown, text
from ..fields.suggestion import suggestion
from .foreign_speculation import (
    FOREIGN_KEYS,
    IDLE,
    METHOD_NAMES,
    MODELS_THAT_ARE_METHODS,
    RENAMED,
    VALUES,
    under_own_keys,
)
from .quantization import KINDS as QUANTIZATION_KINDS
from .quantization import SENTENCE as QUANTIZATION_SENTENCE
from .quantization import as_quantization

NAME = "speculative_config"
METHODS = ("auto", "off", "suffix", "ngram", "replay", "draft_model", "mtp", "eagle3")
SENTENCE = 'must be True, False, a method or a dict such as {"method": "suffix"}'
_STEPS = "num_model_steps"  # FastDeploy's number of drafts that a model makes, part of all drafts
# Python's and JSON's words for values, as text.
_CONSTANTS = {"none": "auto", "null": "auto", "true": "auto", "false": "off"}
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is opened without waiting
JOURNAL = ".journal"  # behind the name of a job's output; until the job ends there is only the journal


def _method(value: Any) -> str:
    name = text(value).casefold()
    return "mtp" if name.endswith("_mtp") else METHOD_NAMES.get(name, name)


def _model(value: Any) -> str:
    name = _path(value)
    path = os.path.expanduser(name)
    return os.path.abspath(path) if os.path.exists(path) else name


def _file(value: Any) -> str:
    return os.path.abspath(os.path.expanduser(_path(value)))


def _path(value: Any) -> str:
    path = text(os.fspath(value))
    if not path or "\0" in path:
        raise ValueError
    return path


def _or_no_limit(value: Any) -> int | None:
    """None from -1, FastDeploy's value for no limit."""
    return None if value == -1 and not isinstance(value, bool) else _AMOUNT.convert(value)


def _tokens(least: int) -> Rule:
    return ranged(integer, f"must be a whole number from {least} to 1024", ge=least, le=1024)


_AMOUNT = at_least(0)
_DRAFTS = _tokens(1)
_METHOD = Rule(_method, METHODS.__contains__, f"must be one of {', '.join(METHODS)}", METHODS)
_QUANTIZATION = Rule(as_quantization, lambda value: True, QUANTIZATION_SENTENCE, QUANTIZATION_KINDS)
_MODEL = Rule(_model, lambda value: True, "must be a folder or a hub id")
_FILE = Rule(_file, lambda value: True, "must be the path of an earlier run's output")
_SIZE = _tokens(1)
_DEPTH = _tokens(2)  # one token of match and one draft
_FACTOR = ranged(real, "must be a finite number above 0", gt=0)
_STORED = Rule(
    _or_no_limit,
    lambda value: value is None or _AMOUNT.holds(value),
    f"must be a whole number from 0 to {MOST}, or -1 for no limit",
)


class SpeculativeConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a tree drafts. `as_speculation` makes one from a caller's value."""

    method: Annotated[str, described("where drafts come from", _METHOD)]
    num_speculative_tokens: Annotated[int | None, described("maximum drafts of a sequence per step", _DRAFTS)] = None
    model: Annotated[str | None, described("the model or the heads that draft", _MODEL)] = None
    quantization: Annotated[
        str | None, described("weight format of the model that drafts; default: the model's own option", _QUANTIZATION)
    ] = None
    file: Annotated[str | None, described("output of an earlier run, whose answers are the drafts", _FILE)] = None
    prompt_lookup_min: Annotated[int, described("minimum tokens that must match", _SIZE)] = 2
    prompt_lookup_max: Annotated[int, described("maximum tokens that are compared", _SIZE)] = 5
    suffix_decoding_max_tree_depth: Annotated[int, described("maximum tokens of match and drafts", _DEPTH)] = 64
    suffix_decoding_max_cached_requests: Annotated[
        int | None, described("maximum finished answers to draft from; None: what memory holds", _STORED)
    ] = None
    suffix_decoding_max_spec_factor: Annotated[
        float | None, described("maximum drafts per matching token; None: any number that pays, or 1.0", _FACTOR)
    ] = None
    suffix_decoding_min_token_prob: Annotated[
        float, described("minimum share of a draft among what followed before", between(0, 1))
    ] = 0.1


_BY_SUFFIX = ("auto", "suffix", "replay", "draft_model", "mtp", "eagle3")
# The methods that read a field; every method reads the others. A field that isn't read keeps its default.
_READ_BY: dict[str, tuple[str, ...]] = {
    "model": ("draft_model", "eagle3"),
    "quantization": ("draft_model", "mtp", "eagle3"),
    "file": ("replay",),
    **{name: ("ngram",) for name in SpeculativeConfig.__struct_fields__ if name.startswith("prompt_lookup")},
    **{name: _BY_SUFFIX for name in SpeculativeConfig.__struct_fields__ if name.startswith("suffix_decoding")},
}
# The field that a method needs, with an example.
_NEEDS = {
    "replay": ("file", "last.jsonl"),
    "draft_model": ("model", "Qwen/Qwen3-0.6B"),
    "eagle3": ("model", "path/to/heads"),
}
_RULES = rules_of(SpeculativeConfig)
_KEYS = (*_RULES, _STEPS, *FOREIGN_KEYS)


def as_speculation(value: Any) -> SpeculativeConfig | None:
    """Convert a caller's value; None lets Penstock decide. Raises ConfigError for a wrong key, and ValueError or
    TypeError for what is no value at all."""
    given = _own_keys(_as_mapping(value))
    steps = given.pop(_STEPS, None)
    fields = {name: _RULES[name].checked(f"{NAME}: {name}", each, ConfigError) for name, each in given.items()}
    if steps is not None:
        least = _DRAFTS.checked(f"{NAME}: {_STEPS}", steps, ConfigError)
        fields["num_speculative_tokens"] = max(least, fields.get("num_speculative_tokens", 0))
    if fields["method"] == "off":
        return SpeculativeConfig(method="off")
    speculation = SpeculativeConfig(**_read_by(fields["method"], _ordered(fields)))
    _check_needs(speculation)
    return None if speculation == SpeculativeConfig(method="auto") else speculation


def notices_of(value: Any) -> list[str]:
    """A sentence for each reason why keys of a valid value have no effect."""
    given = _as_mapping(value)
    speculation = as_speculation(value)
    method = "auto" if speculation is None else speculation.method
    reasons: dict[str, list[str]] = {}
    for key in given:
        readers = _READ_BY.get(RENAMED.get(key, key), ())
        if key in IDLE:
            reasons.setdefault(IDLE[key][0], []).append(key)
        elif readers and method not in readers:
            reasons.setdefault(f"the method is {method}, and not {_either(readers)}", []).append(key)
        elif method == "off" and key not in ("method", *VALUES):
            reasons.setdefault("the method is off", []).append(key)
    return [
        f"{NAME}: {', '.join(keys)} {'have' if len(keys) > 1 else 'has'} no effect: {why}."
        for why, keys in reasons.items()
    ]


def _as_mapping(value: Any) -> dict[str, Any]:
    """What is given, by key. None counts as not given, and a method that its other keys imply is filled in."""
    if isinstance(value, SpeculativeConfig):
        value = msgspec.to_builtins(value)
    elif isinstance(value, bool):
        value = {"method": "auto" if value else "off"}
    elif isinstance(value, str):
        value = _from_text(text(value))
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise TypeError
    given = {key: each for key, each in value.items() if each is not None}
    if not given:
        raise ConfigError(
            f'{NAME}={shown(value)} says nothing. Give a method, such as {{"method": "suffix"}}, or False for none, or '
            "leave the option out."
        )
    if isinstance(model := given.get("model"), str) and model in MODELS_THAT_ARE_METHODS:
        own = given.setdefault("method", model)
        if isinstance(own, str) and _method(own) == _method(model):
            del given["model"]
    implied = "replay" if "file" in given else "draft_model" if "model" in given else "auto"
    return {"method": implied, **given}


def _from_text(words: str) -> Any:
    if not words.lstrip().startswith("{"):
        return {"method": _CONSTANTS.get(words.casefold(), words)}
    try:
        return json_value(words)
    except ValueError as error:
        raise ConfigError(f"{NAME}={shown(words)} is not JSON: {error}.") from None


def _own_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    for key in given:
        if key not in _KEYS:
            raise ConfigError(f"{NAME} has no key {shown(key)}.{suggestion(key, _KEYS)}")
    return under_own_keys(given)


def _ordered(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields; if only one bound of what is looked up is given, the other one gives way to it."""
    least, most = fields.get("prompt_lookup_min"), fields.get("prompt_lookup_max")
    least, most = min(2, most or 2) if least is None else least, max(5, least or 5) if most is None else most
    if least > most:
        raise ConfigError(f"{NAME}: prompt_lookup_min={least} is more than prompt_lookup_max={most}.")
    return {**fields, "prompt_lookup_min": least, "prompt_lookup_max": most}


def _read_by(method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if method in _READ_BY.get(name, METHODS)}


def _check_needs(speculation: SpeculativeConfig) -> None:
    method = speculation.method
    if method in _NEEDS and getattr(speculation, (needed := _NEEDS[method])[0]) is None:
        example = json.dumps({"method": method, needed[0]: needed[1]})
        raise ConfigError(f"{NAME}: method {method} needs a {needed[0]}, such as {example}.")
    if speculation.file is not None:
        _require_file(speculation.file)


def _require_file(path: str) -> None:
    """Raise unless it is a file that can be read, or its journal is."""
    journal = path + JOURNAL
    try:
        file = os.open(journal if os.path.exists(journal) and not os.path.exists(path) else path, _FLAGS)
    except OSError as error:
        why = f"can't be read ({error.strerror}). Give the output of an earlier run"
        raise ConfigError(f"{NAME}: file={shown(path)} {why}.") from error
    is_file = stat.S_ISREG(os.fstat(file).st_mode)
    os.close(file)
    if not is_file:
        raise ConfigError(f"{NAME}: file={shown(path)} is not a file. Give the output of an earlier run.")


def _either(methods: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(methods[:-1]), methods[-1])))
