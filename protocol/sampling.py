"""What a request may ask for (`SamplingParams`), validated where it is written.

One row per field stands in a table of rules; aliases are folded into the field that they stand for.
Knows nothing of models: what can only be wrong against a model (an unknown token id) is the front end's to say.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from .early_stop import SENTENCE as EARLY_STOP_SENTENCE
from .early_stop import EarlyStop, as_early_stop
from .errors import RequestError
from .field_help import explain_fields
from .guided import FORMS, GuidedDecodingParams, as_guided, from_response_format
from .named_fields import NamedFields
from .rules import BOOLEAN, TEXT, Rule, at_least, between, integer, real, text

if TYPE_CHECKING:
    from typing import Unpack

    from .sampling_fields import SamplingFields

MAX_SAMPLES = 128
MAX_LOGPROBS = 20
_MOST_ITEMS = 1 << 20


@explain_fields
class SamplingParams(NamedFields, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How tokens are chosen and when a request ends. Every field is given by its name."""

    temperature: Annotated[float, Meta(description="0 is greedy")] = 1.0
    top_p: Annotated[float, Meta(description="keep the most likely tokens up to this share of probability")] = 1.0
    top_k: Annotated[int, Meta(description="keep that many most likely tokens; 0 or -1 is off")] = 0
    min_p: Annotated[float, Meta(description="drop tokens below this share of the most likely one's")] = 0.0
    presence_penalty: Annotated[float, Meta(description="-2..2, once per token already generated")] = 0.0
    frequency_penalty: Annotated[float, Meta(description="-2..2, per time that a token was generated")] = 0.0
    frequence_penalty: Annotated[float | None, Meta(description="another name of frequency_penalty")] = None
    repetition_penalty: Annotated[float, Meta(description="> 1 discourages tokens of prompt and answer")] = 1.0
    suppress_repetition_in_generation: Annotated[bool, Meta(description="that counts the answer alone")] = False
    no_repeat_ngram_size: Annotated[int, Meta(description="no run of that many tokens comes twice; 0 is off")] = 0
    max_tokens: Annotated[int | None, Meta(description="output tokens at most; unset: to max_model_len")] = None
    max_length: Annotated[int | None, Meta(description="prompt and output tokens together at most")] = None
    min_tokens: Annotated[int, Meta(description="no end before that many output tokens")] = 0
    min_length: Annotated[int, Meta(description="no end before prompt and output have that many tokens")] = 0
    stop: Annotated[list[str] | None, Meta(description="strings that end the answer")] = None
    stop_token_ids: Annotated[list[int] | None, Meta(description="token ids that end the answer")] = None
    ignore_eos: Annotated[bool, Meta(description="go on after the end-of-sequence token")] = False
    eos_token_id: Annotated[list[int] | None, Meta(description="instead of the model's own")] = None
    early_stop: Annotated[EarlyStop | None, Meta(description="end an answer that has fallen into a loop")] = None
    include_stop_str_in_output: Annotated[bool, Meta(description="keep the stop string in the text")] = False
    bad_words: Annotated[list[str] | None, Meta(description="strings that must not appear")] = None
    bad_words_ids: Annotated[list[list[int]] | None, Meta(description="token sequences that must not appear")] = None
    logit_bias: Annotated[dict[int, float] | None, Meta(description="{token id: -100..100} added to logits")] = None
    logits_processors_args: Annotated[dict[str, Any] | None, Meta(description="{processor: what it is told}")] = None
    seed: Annotated[int | None, Meta(description="makes a sampled answer repeat")] = None
    n: Annotated[int, Meta(description="answers per prompt")] = 1
    logprobs: Annotated[int | None, Meta(description="log-probabilities of the best n tokens; -1: all")] = None
    prompt_logprobs: Annotated[int | None, Meta(description="the same for the prompt")] = None
    skip_special_tokens: Annotated[bool, Meta(description="leave special tokens out of the text")] = True
    spaces_between_special_tokens: Annotated[bool, Meta(description="put spaces between special tokens")] = True
    detokenize: Annotated[bool, Meta(description="make text, not only token ids")] = True
    priority: Annotated[int, Meta(description="lower goes first")] = 0
    cache_salt: Annotated[str | None, Meta(description="share cached prefixes only within this salt")] = None
    lora_name: Annotated[str | None, Meta(description="adapter to use")] = None
    reasoning_max_tokens: Annotated[int | None, Meta(description="tokens of thought, which is then closed")] = None
    max_thinking_tokens: Annotated[int | None, Meta(description="another name of reasoning_max_tokens")] = None
    guided_decoding: Annotated[GuidedDecodingParams | None, Meta(description="the shape of the answer")] = None
    # Other ways to write it, folded into it: at most one may be given.
    guided_json: Annotated[dict[str, Any] | None, Meta(description="a JSON schema that the answer follows")] = None
    guided_regex: Annotated[str | None, Meta(description="a regular expression that it matches")] = None
    guided_choice: Annotated[list[str] | None, Meta(description="the answers that there are")] = None
    guided_grammar: Annotated[str | None, Meta(description="a grammar that it follows, in EBNF or Lark")] = None
    guided_json_object: Annotated[bool | None, Meta(description="it is a JSON object")] = None
    guided_structural_tag: Annotated[dict[str, Any] | None, Meta(description="schemas between tags")] = None
    structural_tag: Annotated[dict[str, Any] | None, Meta(description="another name of guided_structural_tag")] = None
    response_format: Annotated[dict[str, Any] | None, Meta(description="OpenAI's way to write one of these")] = None

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[SamplingFields]) -> None: ...

    def __post_init__(self) -> None:
        for alias, name in _ALIASES.items():
            if (value := getattr(self, alias)) is not None:
                setattr(self, name, value)
                setattr(self, alias, None)
        for name, default, rule in _CHECKS:
            if (value := getattr(self, name)) is not default:
                # None is not given, also where a number stands for that.
                setattr(self, name, default if value is None else rule.checked(name, value))
        self._fold_guided()
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}.")
        if self.stop and not self.detokenize:
            raise RequestError("stop strings need detokenize=True; stop_token_ids works without.")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def ending_ids(self) -> set[int]:
        """The tokens that end the answer: the model's own, once they are filled in, and those of the request."""
        return {*(self.eos_token_id or ()), *(self.stop_token_ids or ())}

    def _fold_guided(self) -> None:
        given = [name for name in _GUIDED if getattr(self, name) is not None]
        if not given:
            return
        shapes = {name: value for name in given if (value := getattr(self, name)) is not False}
        if len(shapes) > 1:
            raise RequestError(f"An answer has one shape: {' and '.join(shapes)} can't be given together.")
        for name in given:
            setattr(self, name, None)
        for name, value in shapes.items():
            self.guided_decoding = _GUIDED[name](value)


def _strings(value: Any) -> list[str]:
    return [text(item) for item in ([value] if isinstance(value, str) else _items(value))]


def _integers(value: Any) -> list[int]:
    return [integer(item) for item in _items(value)] if isinstance(value, Sequence) else [integer(value)]


def _items(value: Any) -> Any:
    """Of a list; one that nobody writes, such as `range(10**9)`, isn't gone through."""
    if len(value) > _MOST_ITEMS:
        raise ValueError
    return value


def _ranked() -> Rule:
    sentence = f"must be 0 to {MAX_LOGPROBS}, or -1 for the whole vocabulary"
    return Rule(integer, lambda value: -1 <= value <= MAX_LOGPROBS, sentence)


_TOKEN_IDS = Rule(_integers, lambda ids: all(0 <= item < 2**31 for item in ids), "must be a token id or a list of them")

_RULES: dict[str, Rule] = {
    "temperature": Rule(real, lambda value: 0 <= value < math.inf, "must be a finite number, 0 or more"),
    "top_p": Rule(real, lambda value: 0 < value <= 1, "must be more than 0 and at most 1"),
    "top_k": Rule(integer, lambda value: -1 <= value < 2**31, "must be a whole number; 0 or -1 is off"),
    "min_p": between(0, 1),
    "presence_penalty": between(-2, 2),
    "frequency_penalty": between(-2, 2),
    "repetition_penalty": Rule(real, lambda value: 0 < value < math.inf, "must be a finite number above 0"),
    "max_tokens": at_least(1),
    "max_length": at_least(1),
    "reasoning_max_tokens": at_least(0),
    "min_tokens": at_least(0),
    "min_length": at_least(0),
    "stop": Rule(_strings, lambda items: all(items), "must be a string or a list of strings, none of them empty"),
    "stop_token_ids": _TOKEN_IDS,
    "ignore_eos": BOOLEAN,
    "eos_token_id": _TOKEN_IDS,
    "include_stop_str_in_output": BOOLEAN,
    "bad_words": Rule(_strings, lambda items: all(items), "must be a list of strings, none of them empty"),
    "bad_words_ids": Rule(
        lambda value: [_integers(item) for item in _items(value)],
        lambda words: all(words) and all(0 <= item < 2**31 for word in words for item in word),
        "must be a list of lists of token ids, none of them empty",
    ),
    "logit_bias": Rule(
        lambda value: {int(item): real(bias) for item, bias in dict(value).items()},
        lambda bias: all(0 <= item < 2**31 and -100 <= value <= 100 for item, value in bias.items()),
        "must be {token id: number from -100 to 100}",
    ),
    "seed": Rule(integer, lambda value: 0 <= value < 2**63, "must be a whole number from 0 to 2**63 - 1"),
    "n": Rule(integer, lambda value: 1 <= value <= MAX_SAMPLES, f"must be 1 to {MAX_SAMPLES}"),
    "logprobs": _ranked(),
    "prompt_logprobs": _ranked(),
    "skip_special_tokens": BOOLEAN,
    "spaces_between_special_tokens": BOOLEAN,
    "detokenize": BOOLEAN,
    "priority": Rule(integer, lambda value: abs(value) < 2**31, "must be a whole number"),
    "cache_salt": TEXT,
    "lora_name": TEXT,
    # A row of so many comparisons for each token of the history.
    "no_repeat_ngram_size": Rule(integer, lambda value: 0 <= value <= 1024, "must be 0 to 1024"),
    "suppress_repetition_in_generation": BOOLEAN,
    "early_stop": Rule(as_early_stop, lambda value: True, EARLY_STOP_SENTENCE),
    "logits_processors_args": Rule(
        # As it will arrive: a value that no message can carry raises here.
        lambda value: msgspec.msgpack.decode(msgspec.msgpack.encode(dict(value)), type=dict[str, Any]),
        lambda value: True,
        "must be {name: value}, of plain values such as numbers, strings, lists and dicts",
    ),
}

_ALIASES = {"frequence_penalty": "frequency_penalty", "max_thinking_tokens": "reasoning_max_tokens"}


def _form(name: str) -> Callable[[Any], GuidedDecodingParams]:
    return lambda value: GuidedDecodingParams(**{name: value})


# The ways to write what shape an answer has.
_GUIDED: dict[str, Callable[[Any], GuidedDecodingParams | None]] = {
    "guided_decoding": as_guided,
    **{f"guided_{name}": _form(name) for name in FORMS},
    "structural_tag": _form("structural_tag"),
    "response_format": from_response_format,
}

_DEFAULTS = {item.name: item.default for item in msgspec.structs.fields(SamplingParams)}
# Fields left at their default are skipped: a params object is decoded several times on its way.
_CHECKS = [(name, _DEFAULTS[name], rule) for name, rule in _RULES.items()]
