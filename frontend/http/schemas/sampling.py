"""Fields that every request for an answer may have: OpenAI's, and the additional ones of vLLM's server.

None is the same as not given; then the model's own default applies. Types and bounds are those of `SamplingParams`;
this file says which parameters requests may give, and which have closer bounds for clients than for scripts.
"""

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ....protocol.fields.described import other_names_in, rules_of
from ....protocol.fields.rules import MOST
from ....protocol.outputs import RequestOutput
from ....protocol.parameters.sampling import DRAW, MAX_TOKEN_IDS, PENALTIES, SamplingParams
from .foreign_fields import foreign

# The fields of a body are made from those of `SamplingParams`, with their types, bounds and meanings.
_RULES = rules_of(SamplingParams)
_OTHER_NAMES = other_names_in(SamplingParams)
_ANNOTATED = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}


def struct_of(
    name: str,
    base: type[msgspec.Struct],
    parameters: Iterable[str],
    closer: Mapping[str, Mapping[str, Any]],
    forms: Mapping[str, Any],
) -> type[msgspec.Struct]:
    """`base` with these parameters; `closer` has tighter bounds, `forms` has types that differ from their own."""
    fields = [(each, optional(each, closer.get(each, {}), forms.get(each)), None) for each in parameters]
    return msgspec.defstruct(name, fields, bases=(base,), kw_only=True, forbid_unknown_fields=True, module=__name__)


def optional(parameter: str, closer: Mapping[str, Any], form: Any = None) -> Any:
    annotated = _ANNOTATED[_OTHER_NAMES.get(parameter, parameter)]
    words = {"description": annotated.__metadata__[0].description, **closer}
    meaning = Meta(description=words.pop("description"))
    return Annotated[(bounded(parameter, words) if form is None else form) | None, meaning]


def bounded(parameter: str, closer: Mapping[str, Any]) -> Any:
    """A parameter's type with its bounds, for a decoder. Those of a list or dict apply to its items."""
    kind = _ANNOTATED[parameter].__origin__
    if NoneType in get_args(kind):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    rule = _RULES.get(parameter)
    bounds = {} if rule is None else rule.bounds
    if get_origin(kind) is list:
        return _within(list[_within(get_args(kind)[0], bounds)], closer)  # type: ignore[misc]
    if get_origin(kind) is dict:  # in JSON a key is text
        return _within(dict[str, _within(get_args(kind)[1], bounds)], closer)  # type: ignore[misc]
    return _within(kind, {**bounds, **closer})


def _within(kind: Any, bounds: Mapping[str, Any]) -> Any:
    return Annotated[kind, Meta(**bounds)] if bounds else kind


Count = Annotated[int, Meta(ge=1, le=MOST)]
Ranked = Annotated[int, Meta(ge=0, le=MOST)]  # the option max_logprobs limits it
TokenId = Annotated[int, Meta(ge=0, le=MOST)]
FreeForm = dict[str, Any]
# OpenAI's words for how long a model thinks; a template with words of its own gets them by chat_template_kwargs.
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None  # without effect


class Ignored(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of OpenAI's clients that have no effect here."""

    user: str | None = None
    metadata: FreeForm | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    request_id: str | None = None


if TYPE_CHECKING:
    _Foreign = Ignored
else:
    _Foreign = foreign(Ignored)


class Request(_Foreign, kw_only=True, forbid_unknown_fields=True):
    """The fields next to the parameters in every request for an answer."""

    model: Annotated[str | None, Meta(description="a name from /v1/models, also of an adapter")] = None
    stream: bool | None = None
    structured_outputs: Annotated[FreeForm | None, Meta(description="in vLLM's format: {form: value}")] = None


# The parameters that a client may give, in every kind of request.
TAKEN = (
    *DRAW, *PENALTIES, "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "seed",
    "no_repeat_ngram_size", "logit_bias", "bad_words", "skip_special_tokens", "spaces_between_special_tokens",
    "reasoning_max_tokens", "early_stop", "priority", "continue_on_restart", "cache_salt", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "guided_json_object", "structural_tag",
    "prediction", "receipt",
)  # fmt: skip
# Parameters that /v1/responses doesn't have, or writes in its own way.
TAKEN_WITH_CHOICES = ("n", "prompt_logprobs", "lora_name", "response_format")
# Parameters with closer bounds, or longer descriptions, for clients than for scripts.
_CLOSER: dict[str, dict[str, Any]] = {
    "temperature": {"le": 1000},
    "repetition_penalty": {"le": 1000},
    "prompt_logprobs": {"ge": 0},
    "stop_token_ids": {"max_length": MAX_TOKEN_IDS},
    "cache_salt": {"max_length": 1024},
    "lora_name": {"max_length": 1024},
    "early_stop": {"description": "end an answer in a loop; default: once 768 tokens are one cycle; false: never"},
    "priority": {"description": "requests with a lower number go first; only 0 unless the server allows others"},
}
_FORMS: dict[str, Any] = {
    "stop": str | list[str],
    "guided_json": FreeForm | str,
    "early_stop": FreeForm | bool,
    "prediction": FreeForm | str,
}

if TYPE_CHECKING:

    class SamplingRequest(Request, kw_only=True):
        def __getattr__(self, name: str) -> Any: ...

    _WithChoices = SamplingRequest
else:
    SamplingRequest = struct_of("SamplingRequest", Request, TAKEN, _CLOSER, _FORMS)
    _WithChoices = struct_of("WithChoices", SamplingRequest, TAKEN_WITH_CHOICES, _CLOSER, _FORMS)


class Sampling(_WithChoices, kw_only=True, forbid_unknown_fields=True):
    stream_options: StreamOptions | None = None

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage is True


class PromptDetails(msgspec.Struct, kw_only=True):
    cached_tokens: int = 0
    image_tokens: int = 0  # placeholders for rows of pictures, cached or not
    video_tokens: int = 0  # likewise; OpenAI has no name for them

    @classmethod
    def of(cls, output: RequestOutput) -> "PromptDetails":
        return cls(
            cached_tokens=output.num_cached_tokens,
            image_tokens=output.num_input_image_tokens,
            video_tokens=output.num_input_video_tokens,
        )

    @classmethod
    def sum_of(cls, several: Iterable["PromptDetails"]) -> "PromptDetails":
        columns = zip(*(msgspec.structs.astuple(each) for each in several))
        return cls(**dict(zip(cls.__struct_fields__, map(sum, columns))))


class CompletionDetails(msgspec.Struct, kw_only=True):
    """How many drafts were accepted, and how many not, in a request with a `prediction`. Drafts that the server has
    found itself count, too. Only accepted ones are part of the answer, and of `completion_tokens`."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails | UnsetType = UNSET  # if there is a prediction


class PromptLogprob(msgspec.Struct, kw_only=True):
    logprob: float
    rank: int
    decoded_token: str | None


PromptLogprobs = list[dict[str, PromptLogprob] | None]
