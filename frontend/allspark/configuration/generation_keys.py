"""Reads a generation configuration: converts each key for `SamplingParams`, or for a beam search.

`KEYS` has a row for each. A key that nobody knows, or a value that can't work, raises `RequestError`.
"""

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ....protocol.errors import LimitError, RequestError
from ....protocol.fields.rules import BOOLEAN, shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.parameters.beams import BeamSearchParams
from ....protocol.parameters.guided import GuidedDecodingParams
from ....protocol.parameters.sampling import DRAW, PENALTIES, SamplingParams
from ..loaders.loader import say_idle
from ..names import NO_OWN_ROWS, VocabType
from .generation_config import ASGenerationConfigBuilder

Fields = dict[str, Any]
Row = Callable[[Any], Fields]


def _same(field: str) -> Row:
    return lambda value: {field: value}


def _flag(name: str, if_true: Fields, if_false: Fields) -> Row:
    return lambda value: if_true if BOOLEAN.checked(name, value) else if_false


def _nothing(value: Any) -> Fields:
    return {}


def _end_token(value: Any) -> Fields:
    """Convert an end token; 0, the default of DashInfer's builder, means the model's own."""
    return {} if type(value) is int and value == 0 else {"eos_token_id": value}


def _one_answer(value: Any) -> Fields:
    if value != 1:
        raise RequestError(f"num_return_sequences={shown(value)}: a request has one answer; start several requests.")
    return {}


def _adapter(value: Any) -> Fields:
    """Convert an adapter's name; the empty name, DashInfer's default, means none."""
    return {} if value == "" else {"lora_name": value}


def _shape(value: Any) -> Fields:
    """Convert a format in OpenAI's form, or in DashInfer's: a JSON object with its schema next to the type."""
    match value:
        case {"type": "json_object", "json_schema": schema} if schema:
            return {"guided_decoding": GuidedDecodingParams(json=schema)}
    return {"response_format": value}


_VOCAB_TYPES = [name for each in VocabType for name in (each.name, each.name.removeprefix("VOCAB_TYPE_"))]


def _idle(key: str, value: Any, kinds: Any) -> Fields:
    """DashInfer's engine is told the vocabulary; here it is read from the model."""
    is_named = kinds is not Mapping and value in _VOCAB_TYPES
    if not is_named and (not isinstance(value, kinds) or isinstance(value, bool)):
        raise RequestError(f"{key}={shown(value)}: must be what DashInfer's loader gives, or left out.")
    _say_idle_once(key, "the model's tokenizer is known")
    return {}


_say_idle_once = cache(say_idle)  # requests are many


def _no_media(value: Any) -> Fields:
    raise RequestError(NO_OWN_ROWS)


# What each key becomes. Those of beams and of log-probabilities, and the name, are read elsewhere below.
KEYS: dict[str, Row] = {
    "do_sample": _flag("do_sample", {}, {"temperature": 0.0}),
    "early_stopping": _flag("early_stopping", {}, {"ignore_eos": True}),
    "eos_token_id": _end_token,
    "num_return_sequences": _one_answer,
    "mm_info": _no_media,
    "lora_name": _adapter,
    "response_format": _shape,
    "max_new_tokens": lambda value: {"max_tokens": value},
    **dict.fromkeys(("num_beams", "length_penalty", "logprobs", "top_logprobs", "uuid"), _nothing),
    "vocab": lambda value: _idle("vocab", value, Mapping),
    "vocab_type": lambda value: _idle("vocab_type", value, (VocabType, int)),
    **{
        key: _same(key)
        for key in (
            *DRAW, *PENALTIES, "max_length", "min_length", "stop_words_ids", "bad_words_ids", "no_repeat_ngram_size",
            "suppress_repetition_in_generation", "seed",
        )
    },
}  # fmt: skip
# Applied last, whatever the order of the keys: greedy is greedy at any temperature.
_LAST = ("do_sample",)
# Keys that a beam search uses, and those that don't apply since it samples nothing. Any other key is refused next to
# `num_beams`, unless its value changes nothing.
_OF_BEAMS = ("num_beams", "length_penalty", "early_stopping", "max_length", "lora_name")
_WITHOUT_EFFECT_ON_BEAMS = (
    *DRAW, "do_sample", "seed", "suppress_repetition_in_generation", "top_logprobs", "num_return_sequences", "uuid",
    "vocab", "vocab_type",
)  # fmt: skip


class Generation(NamedTuple):
    """The settings that a request is started with."""

    params: SamplingParams
    beams: BeamSearchParams | None  # without a length, which depends on the prompt
    num_top: int | None  # most likely tokens to report; None: no log-probabilities at all
    name: str | None

    def params_for(self, num_prompt: int) -> SamplingParams | BeamSearchParams:
        """The parameters for a prompt of that many tokens."""
        if self.beams is None:
            return self.params
        most = self.params.max_length
        if most is None:
            return self.beams
        if most <= num_prompt:
            raise LimitError(f"max_length={most} leaves no token after a prompt of {num_prompt}.")
        return msgspec.structs.replace(self.beams, max_tokens=most - num_prompt)


def generation_of(config: ASGenerationConfigBuilder | Mapping[str, Any]) -> Generation:
    values = config.build() if isinstance(config, ASGenerationConfigBuilder) else config
    if not isinstance(values, Mapping):
        raise RequestError(f"A generation configuration is a builder or a dict, not {type(values).__name__}.")
    given = {key: value for key, value in values.items() if value is not None}
    for key in given:
        if key not in KEYS:
            raise RequestError(f"There is no key {shown(key)} of a generation.{suggestion(key, KEYS)}")
    fields: Fields = {}
    for key in given.keys() - set(_LAST):
        fields |= KEYS[key](given[key])
    SamplingParams(**fields)  # also what greedy answers and beams pass over must be right
    for key in given.keys() & set(_LAST):
        fields |= KEYS[key](given[key])
    num_top = _num_top(given)
    params = SamplingParams(**fields, logprobs=num_top, detokenize=False)  # callers get token ids
    defaults = config.model_defaults if isinstance(config, ASGenerationConfigBuilder) else {}
    return Generation(params, _beams(given, defaults, params), num_top, _name(given))


def _num_top(given: Mapping[str, Any]) -> int | None:
    if not BOOLEAN.checked("logprobs", given.get("logprobs", False)):
        return None
    return _whole("top_logprobs", given.get("top_logprobs", 0), 0, 20)


def _whole(key: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise RequestError(f"{key}={shown(value)}: must be a whole number from {least} to {most}.")
    return number


def _beams(given: Mapping[str, Any], defaults: Mapping[str, Any], params: SamplingParams) -> BeamSearchParams | None:
    width = _whole("num_beams", given.get("num_beams", 1), 1, 128)
    if width == 1:
        return None
    length_penalty = given.get("length_penalty", 1.0)
    beams = BeamSearchParams(beam_width=width, length_penalty=length_penalty, ignore_eos=params.ignore_eos)
    for key, value in given.items():
        is_default = key in defaults and defaults[key] == value
        if key not in (*_OF_BEAMS, *_WITHOUT_EFFECT_ON_BEAMS) and not is_default and _changes_a_sample(key, value):
            raise RequestError(f"num_beams={beams.beam_width}: a beam search knows no {key}; leave it out.")
    return beams


def _changes_a_sample(key: str, value: Any) -> bool:
    if key == "logprobs":
        return value is True
    return value != [] and SamplingParams(**KEYS[key](value)) != SamplingParams()


def _name(given: Mapping[str, Any]) -> str | None:
    name = given.get("uuid")
    if not isinstance(name, str | None):
        raise RequestError(f"uuid={shown(name)}: must be text.")
    return name
