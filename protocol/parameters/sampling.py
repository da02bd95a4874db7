"""Sampling parameters of a request (`SamplingParams`), validated on construction.

A field states a parameter completely: type, meaning, rule and default (docs/adding-a-parameter.md). Aliases are folded
into the field that they stand for. Checks that need the model (for unknown token ids) are in the front end.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from ..errors import RequestError
from ..fields.described import another_name_of, described, other_names_in, rules_of
from ..fields.field_help import explain_fields
from ..fields.rules import (
    BOOLEAN,
    FINITE,
    MOST,
    TEXT,
    NamedFields,
    Rule,
    at_least,
    between,
    integer,
    ranged,
    real,
    shown,
    text,
    whole,
)
from ..fields.suggestion import suggestion
from .early_stop import SENTENCE as EARLY_STOP_SENTENCE
from .early_stop import EarlyStop, as_early_stop
from .guided import FORMS, GuidedDecodingParams, as_guided, from_response_format

if TYPE_CHECKING:
    from typing import Unpack

    from .sampling_fields import SamplingFields

MAX_SAMPLES = 128
MAX_LOGPROBS = 20  # of a token, unless the option max_logprobs says another limit
MAX_TOKEN_IDS = 1024
_MOST_ITEMS = 1 << 20


def _strings(value: Any) -> list[str]:
    return [text(item) for item in ([value] if isinstance(value, str) else _items(value))]


def _integers(value: Any) -> list[int]:
    return [integer(item) for item in _items(value)] if isinstance(value, Sequence) else [integer(value)]


def _items(value: Any) -> Any:
    """The list itself; raises for unreasonable ones, such as `range(10**9)`, before iterating over them."""
    if len(value) > _MOST_ITEMS:
        raise ValueError
    return value


def _as_it_arrives(value: Any) -> dict[str, Any]:
    """The dict as the worker will receive it; raises for values that can't be sent."""
    found: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(dict(value)), type=dict[str, Any])
    return found


def _prediction(value: Any) -> str:
    """The text, alone or in OpenAI's form: as an object, with the text in one piece or several."""
    if isinstance(value, Mapping):
        value = _only_entry(value, "content", "content")
    if isinstance(value, str):
        return text(value)
    return "".join(text(_only_entry(part, "text", "text")) for part in _items(value))


def _only_entry(value: Mapping[str, Any], kind: str, key: str) -> Any:
    """The entry of a mapping that has nothing else than it and its type."""
    if value.get("type") != kind:
        raise ValueError
    for name in value:
        if name not in ("type", key):
            raise RequestError(f"prediction has no field {shown(name)}.{suggestion(name, ('type', key))}")
    return value.get(key)


FACTOR = ranged(real, "must be a finite number above 0", gt=0)
TOP_K = ranged(integer, "must be a whole number; 0 or -1 is off", ge=-1, le=MOST)
PRIORITY = ranged(integer, "must be a whole number", ge=-MOST, le=MOST)
SEED = ranged(integer, "must be a whole number from 0 to 2**63 - 1", ge=0, le=2**63 - 1)
RANKED = ranged(integer, "must be a whole number, or -1 for the whole vocabulary", ge=-1, le=MOST)

_ID = ranged(integer, "must be a token id", ge=0, le=MOST)
_BIAS = between(-100, 100)
TOKEN_IDS = Rule(
    _integers,
    lambda ids: len(ids) <= MAX_TOKEN_IDS and all(map(_ID.holds, ids)),
    f"must be a token id or a list of at most {MAX_TOKEN_IDS:,} of them",
    bounds=_ID.bounds,
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
PREDICTION = Rule(
    _prediction,
    lambda value: True,
    'must be text, or {"type": "content", "content": text} as OpenAI\'s clients send it',
)
PLAIN = Rule(
    _as_it_arrives,
    lambda value: True,
    "must be {name: value}, of plain values such as numbers, strings, lists and dicts",
)


# Parameters of the draw of a token, and those that change its logits first. Models come with defaults for them, other
# engines' files set them, and clients show them.
DRAW = ("temperature", "top_p", "top_k", "min_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")


@explain_fields
class SamplingParams(NamedFields, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How tokens are sampled and when a request ends. Give fields by name, or by position in FastDeploy's order."""

    temperature: Annotated[float, described("sampling temperature; 0 is greedy", FINITE)] = 1.0
    top_p: Annotated[
        float, described("sample from the likeliest tokens with this total probability; 0 is greedy", between(0, 1))
    ] = 1.0
    top_k: Annotated[int, described("sample from this many likeliest tokens; 0 or -1 is off", TOP_K)] = 0
    min_p: Annotated[float, described("drop tokens below this share of the likeliest one's", between(0, 1))] = 0.0
    presence_penalty: Annotated[float, described("penalty for tokens that were generated before", between(-2, 2))] = 0.0
    frequency_penalty: Annotated[float, described("penalty for each time a token was generated", between(-2, 2))] = 0.0
    frequence_penalty: Annotated[float | None, another_name_of("frequency_penalty")] = None
    repetition_penalty: Annotated[float, described("above 1 discourages tokens of prompt and answer", FACTOR)] = 1.0
    suppress_repetition_in_generation: Annotated[
        bool, described("let repetition_penalty ignore the prompt", BOOLEAN)
    ] = False
    # Bounded, because each token of the history costs this many comparisons.
    no_repeat_ngram_size: Annotated[
        int, described("never repeat a run of this many tokens; 0 is off", whole(0, 1024))
    ] = 0
    max_tokens: Annotated[int | None, described("maximum output tokens; default: the whole context", at_least(1))] = (
        None
    )
    max_length: Annotated[int | None, described("maximum of prompt plus output tokens", at_least(1))] = None
    min_tokens: Annotated[int, described("minimum output tokens", at_least(0))] = 0
    min_length: Annotated[int, described("minimum of prompt plus output tokens", at_least(0))] = 0
    stop: Annotated[list[str] | None, described("strings that end the answer", STOP)] = None
    stop_token_ids: Annotated[list[int] | None, described("token ids that end the answer", TOKEN_IDS)] = None
    stop_words_ids: Annotated[list[list[int]] | None, described("token sequences that end the answer", ID_LISTS)] = None
    ignore_eos: Annotated[bool, described("continue after the end-of-sequence token", BOOLEAN)] = False
    eos_token_id: Annotated[list[int] | None, described("end-of-sequence tokens to use", TOKEN_IDS)] = None
    early_stop: Annotated[EarlyStop | None, described("end an answer that repeats itself", EARLY_STOP)] = None
    include_stop_str_in_output: Annotated[bool, described("keep the stop string in the text", BOOLEAN)] = False
    bad_words: Annotated[list[str] | None, described("strings that must not appear", WORDS)] = None
    bad_words_ids: Annotated[list[list[int]] | None, described("token sequences that must not appear", ID_LISTS)] = None
    bad_words_token_ids: Annotated[list[list[int]] | None, another_name_of("bad_words_ids")] = None
    logit_bias: Annotated[dict[int, float] | None, described("{token id: -100..100} added to logits", BIASES)] = None
    logits_processors_args: Annotated[dict[str, Any] | None, described("arguments of processors, by name", PLAIN)] = (
        None
    )
    seed: Annotated[int | None, described("makes a sampled answer reproducible", SEED)] = None
    n: Annotated[int, described("answers per prompt", whole(1, MAX_SAMPLES))] = 1
    logprobs: Annotated[int | None, described("log-probabilities of the n likeliest tokens; -1: all", RANKED)] = None
    prompt_logprobs: Annotated[int | None, described("the same for the prompt's tokens", RANKED)] = None
    receipt: Annotated[bool, described("add a receipt, by which the answer can be verified", BOOLEAN)] = False
    skip_special_tokens: Annotated[bool, described("leave special tokens out of the text", BOOLEAN)] = True
    spaces_between_special_tokens: Annotated[bool, described("put spaces between special tokens", BOOLEAN)] = True
    detokenize: Annotated[bool, described("return text, not only token ids", BOOLEAN)] = True
    priority: Annotated[int, described("requests with a lower number go first", PRIORITY)] = 0
    continue_on_restart: Annotated[
        bool, described("go on in the new processes if a daemon's die under the request", BOOLEAN)
    ] = True
    cache_salt: Annotated[str | None, described("share cached prefixes only within this salt", TEXT)] = None
    prediction: Annotated[
        str | None, described("what the answer will probably say; right parts come faster", PREDICTION)
    ] = None
    lora_name: Annotated[str | None, described("LoRA adapter to use", TEXT)] = None
    reasoning_max_tokens: Annotated[int | None, described("maximum tokens of thought", at_least(0))] = None
    max_thinking_tokens: Annotated[int | None, another_name_of("reasoning_max_tokens")] = None
    guided_decoding: Annotated[GuidedDecodingParams | None, described("the shape of the answer")] = None
    # Aliases of guided_decoding, folded into it; at most one may be given.
    guided_json: Annotated[dict[str, Any] | None, described("a JSON schema that the answer follows")] = None
    guided_regex: Annotated[str | None, described("a regular expression that the answer matches")] = None
    guided_choice: Annotated[list[str] | None, described("a list of allowed answers")] = None
    guided_grammar: Annotated[str | None, described("a grammar that the answer follows, in EBNF or Lark")] = None
    guided_json_object: Annotated[bool | None, described("make the answer a JSON object")] = None
    guided_structural_tag: Annotated[dict[str, Any] | None, described("schemas for what is between tags")] = None
    structural_tag: Annotated[dict[str, Any] | None, another_name_of("guided_structural_tag")] = None
    response_format: Annotated[dict[str, Any] | None, described("one of these in OpenAI's format")] = None

    _order: ClassVar[tuple[str, ...]] = (
        "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k",
        "min_p", "seed", "stop", "stop_token_ids", "stop_seqs_len", "max_tokens", "reasoning_max_tokens", "min_tokens",
        "logprobs", "temp_scaled_logprobs", "top_p_normalized_logprobs", "bad_words", "guided_decoding",
        "bad_words_token_ids",
    )  # fmt: skip

    if TYPE_CHECKING:

        def __init__(self, *in_fastdeploys_order: Any, **fields: Unpack[SamplingFields]) -> None: ...

    def __post_init__(self) -> None:
        for alias, name in _ALIASES.items():
            if (value := getattr(self, alias)) is not None:
                value = _RULES[name].checked(alias, value)
                if getattr(self, name) not in (_DEFAULTS[name], value):
                    raise RequestError(f"{alias} is another name of {name}; give one of them.")
                setattr(self, name, value)
                setattr(self, alias, None)
        # Only fields that differ from their defaults are checked: params are decoded several times on their way.
        given = [*compress(_DEFAULTS, map(is_not, msgspec.structs.astuple(self), _DEFAULTS.values()))]
        for name in given:
            if name in _RULES:
                value = getattr(self, name)
                # None means not given, also for fields with a numeric default.
                checked = _DEFAULTS[name] if value is None else _RULES[name].checked(name, value)
                if checked is not value:
                    setattr(self, name, checked)
        if shapes := [name for name in given if name in _GUIDED]:
            self._fold_guided(shapes)
        if self.top_p == 0:  # only the most likely token is left
            self.temperature, self.top_p = 0.0, 1.0
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}.")
        if self.stop and not self.detokenize:
            raise RequestError("stop strings need detokenize=True; stop_token_ids works without.")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def ending_ids(self) -> set[int]:
        """The tokens that end the answer: the model's own, once they are filled in, and the request's."""
        return {*(self.eos_token_id or ()), *self.stopping_ids}

    @property
    def stopping_ids(self) -> list[int]:
        """The single tokens that the request itself names as stops."""
        return [*(self.stop_token_ids or ()), *(word[0] for word in self.stop_words_ids or () if len(word) == 1)]

    @property
    def long_stop_words(self) -> list[list[int]]:
        """Stop sequences of several tokens."""
        return [word for word in self.stop_words_ids or () if len(word) > 1]

    def _fold_guided(self, given: list[str]) -> None:
        shapes = {name: value for name in given if (value := getattr(self, name)) is not False}
        if len(shapes) > 1:
            raise RequestError(f"An answer has one shape: {' and '.join(shapes)} can't be given together.")
        for name in given:
            setattr(self, name, None)
        for name, value in shapes.items():
            self.guided_decoding = _GUIDED[name](value)


def _from_field(name: str) -> Callable[[Any], GuidedDecodingParams]:
    return lambda value: GuidedDecodingParams(**{name: value})


# Aliases of guided_decoding.
_GUIDED: dict[str, Callable[[Any], GuidedDecodingParams | None]] = {
    "guided_decoding": as_guided,
    **{f"guided_{name}": _from_field(name) for name in FORMS},
    "structural_tag": _from_field("structural_tag"),
    "response_format": from_response_format,
}

# The aliases of guided_decoding are folded in `_fold_guided`.
_ALIASES = {alias: name for alias, name in other_names_in(SamplingParams).items() if alias not in _GUIDED}
_DEFAULTS = {item.name: item.default for item in msgspec.structs.fields(SamplingParams)}
_RULES = rules_of(SamplingParams)
