"""Makes `SamplingParams` from a request's fields; missing ones get the model's own defaults."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.parameters.guided import FORMS, GuidedDecodingParams
from ....protocol.parameters.sampling import SamplingParams
from ..answers.errors import ApiError
from ..schemas.foreign_fields import FOREIGN_FIELDS, RENAMED
from ..schemas.sampling import TAKEN, TAKEN_WITH_CHOICES, SamplingRequest

_SAME_NAMES = tuple(name for name in (*TAKEN, *TAKEN_WITH_CHOICES) if name != "cache_salt")
_SHAPES = ("guided_decoding", "response_format", "structural_tag", *(f"guided_{form}" for form in FORMS))


def sampling_params(
    request: SamplingRequest,
    defaults: SamplingParams,
    salt: str | None,
    *,
    call_shape: GuidedDecodingParams | None = None,
    **further: Any,
) -> SamplingParams:
    """`further` are fields that each kind of request has in its own form; None among them counts as not given."""
    _check_foreign_fields(request)
    chosen = {name: value for name in _SAME_NAMES if (value := getattr(request, name, None)) is not None}
    chosen.update({name: value for name, value in further.items() if value is not None})
    if isinstance(schema := chosen.get("response_format", {}).get("json_schema"), dict):
        chosen["response_format"] = {**chosen["response_format"], "json_schema": _without_nulls(schema)}
    sent = _renamed(request, chosen)
    try:
        if request.structured_outputs is not None and (shape := _structured(request.structured_outputs)):
            if "guided_json" in chosen:
                raise RequestError("An answer has one shape: give structured_outputs or guided_json, not both.")
            chosen["guided_decoding"] = shape
        if call_shape is not None:
            _set_call_shape(chosen, call_shape, sent)
        chosen["cache_salt"] = salted(salt, request.cache_salt)
        return msgspec.structs.replace(defaults, **chosen)
    except RequestError as error:
        raise type(error)(_in_their_words(str(error), sent)) from None


def _renamed(request: SamplingRequest, chosen: dict[str, Any]) -> dict[str, str]:
    """Add parameters sent under other names to `chosen`; returns these names by ours."""
    sent = {"guided_decoding": "structured_outputs"} if request.structured_outputs is not None else {}
    for theirs, ours in RENAMED.items():
        if (value := getattr(request, theirs, None)) is None:
            continue
        if chosen.setdefault(ours, value) != value:
            raise ApiError(400, f"{theirs} is another name of {ours}; give one of them.", param=theirs)
        sent[ours] = theirs
    return sent


def _in_their_words(sentence: str, sent: Mapping[str, str]) -> str:
    """An error message with the field names that the client has sent."""
    for ours, theirs in sent.items():
        form = ours.removeprefix("guided_")
        sentence = re.sub(rf"\bguided_decoding: {form}\b|\b{ours}\b", theirs, sentence)
    return sentence


def _set_call_shape(chosen: dict[str, Any], shape: GuidedDecodingParams, sent: Mapping[str, str]) -> None:
    """Require the answer to be a call; a format without requirements may be given nevertheless."""
    if (form := chosen.get("response_format")) is not None and form.get("type") == "text":
        del chosen["response_format"]
    given = [sent.get(name, name) for name in _SHAPES if chosen.get(name) not in (None, False)]
    if given:
        why = f"{given[0]} and a tool_choice that asks for a call can't be given together."
        raise ApiError(400, why, param=given[0])
    chosen["guided_decoding"] = shape


def _check_foreign_fields(request: SamplingRequest) -> None:
    names, values_of = _foreign_fields(type(request))
    values = values_of(request)
    if values.count(None) == len(values):  # of nearly all requests
        return
    for name, value in zip(names, values, strict=True):
        row = FOREIGN_FIELDS[name]
        if value is not None and not row.accepts(value):
            raise ApiError(400, f"{name}={shown(value)} is not supported: {row.reason}.", param=name)


@cache
def _foreign_fields(kind: type[SamplingRequest]) -> tuple[tuple[str, ...], Callable[[SamplingRequest], Any]]:
    """The foreign fields that this kind of request doesn't declare itself, and what reads them all."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    names = tuple(name for name in FOREIGN_FIELDS if getattr(types[name], "__origin__", None) is Any)
    return names, attrgetter(*names)


def salted(salt: str | None, own: str | None) -> str | None:
    """Cached prefixes are shared only within a key, which a request may subdivide."""
    return own if salt is None else f"{salt} {own or ''}"


def _without_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _structured(given: dict[str, Any]) -> GuidedDecodingParams | None:
    """The shape; None if each form is null, or switched off."""
    if unknown := sorted(given.keys() - {*FORMS, "disable_any_whitespace"}):
        hint = suggestion(unknown[0], FORMS)
        raise ApiError(400, f"structured_outputs has no {unknown[0]!r}; it takes one of {', '.join(FORMS)}.{hint}")
    asked = _without_nulls(given)
    return GuidedDecodingParams(**asked) if any(asked.get(form) not in (None, False) for form in FORMS) else None
