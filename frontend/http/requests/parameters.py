"""Makes `SamplingParams` of a request's fields; those it leaves out have the model's own defaults."""

from typing import Any

import msgspec

from ....protocol.fields.suggestion import suggestion
from ....protocol.parameters.guided import FORMS, GuidedDecodingParams
from ....protocol.parameters.sampling import SamplingParams
from ..answers.errors import ApiError
from ..schemas.sampling import TAKEN, TAKEN_WITH_CHOICES, SamplingRequest

_SAME_NAMES = tuple(name for name in (*TAKEN, *TAKEN_WITH_CHOICES) if name != "cache_salt")


def sampling_params(
    request: SamplingRequest, defaults: SamplingParams, salt: str | None, **further: Any
) -> SamplingParams:
    """`further` are fields that each kind of request writes in its own way; None among them is not given."""
    chosen = {name: value for name in _SAME_NAMES if (value := getattr(request, name, None)) is not None}
    chosen.update({name: value for name, value in further.items() if value is not None})
    if request.structured_outputs is not None:
        if "guided_decoding" in chosen or "guided_json" in chosen:
            raise ApiError(400, "An answer has one shape: give structured_outputs or guided_json, not both.")
        chosen["guided_decoding"] = _structured(request.structured_outputs)
    chosen["cache_salt"] = _salted(salt, request.cache_salt)
    return msgspec.structs.replace(defaults, **chosen)


def _salted(salt: str | None, own: str | None) -> str | None:
    """Cached prefixes are shared within a key only; within it, a request may divide further."""
    return own if salt is None else f"{salt} {own or ''}"


def _structured(given: dict[str, Any]) -> GuidedDecodingParams:
    if unknown := sorted(given.keys() - {*FORMS, "disable_any_whitespace"}):
        hint = suggestion(unknown[0], FORMS)
        raise ApiError(400, f"structured_outputs has no {unknown[0]!r}; it takes one of {', '.join(FORMS)}.{hint}")
    return GuidedDecodingParams(**given)
