"""Makes fields of a request's body from those of `SamplingParams`, with their types, bounds and meanings.

None is the same as not given.
"""

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import Meta

from ....protocol.fields.described import other_names_in, rules_of
from ....protocol.parameters.sampling import SamplingParams

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
    """`base` with these parameters; `closer` has bounds beside their own, `forms` a type where it isn't their own."""
    fields = [(each, optional(each, closer.get(each, {}), forms.get(each)), None) for each in parameters]
    return msgspec.defstruct(name, fields, bases=(base,), kw_only=True, forbid_unknown_fields=True, module=__name__)


def optional(parameter: str, closer: Mapping[str, Any], form: Any = None) -> Any:
    annotated = _ANNOTATED[_OTHER_NAMES.get(parameter, parameter)]
    words = {"description": annotated.__metadata__[0].description, **closer}
    meaning = Meta(description=words.pop("description"))
    return Annotated[(bounded(parameter, words) if form is None else form) | None, meaning]


def bounded(parameter: str, closer: Mapping[str, Any]) -> Any:
    """Its type with its bounds, as a decoder takes them. Those of a list or dict hold for what is in it."""
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
