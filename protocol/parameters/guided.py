"""The required shape of an answer: as the caller writes it (`GuidedDecodingParams`), and as the engine gets it
(`Grammar`, `Thought` for the reasoning before it, and `CallGuide` for tool calls in it).

Errors inside a schema or a grammar are found by the front end and the engine, not here.
"""

import json as json_text
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..errors import RequestError
from ..fields.field_help import explain_fields
from ..fields.rules import NamedFields, shown

# The forms; a request may use one. The flat fields of SamplingParams are named `guided_` and the form.
FORMS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


@explain_fields
class GuidedDecodingParams(NamedFields, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The shape of an answer, in exactly one of its forms."""

    json: Annotated[Any, Meta(description="a JSON schema: a dict, its text, or a pydantic model")] = None
    regex: Annotated[str | None, Meta(description="a regular expression that the whole answer matches")] = None
    choice: Annotated[list[str] | None, Meta(description="the answers that there are")] = None
    grammar: Annotated[str | None, Meta(description="a context-free grammar, in EBNF (GBNF) or Lark")] = None
    json_object: Annotated[bool | None, Meta(description="True: any JSON object")] = None
    structural_tag: Annotated[Any, Meta(description="schemas that hold between tags: a dict or its text")] = None
    disable_any_whitespace: Annotated[bool, Meta(description="JSON without white space between its tokens")] = False

    def __post_init__(self) -> None:
        self.json_object = self.json_object or None
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise RequestError(
                f"guided_decoding takes exactly one of {', '.join(FORMS)}; given: {' and '.join(given) or 'none'}."
            )
        for name in ("regex", "grammar"):
            if (text := getattr(self, name)) is None:
                continue
            if not isinstance(text, str):
                raise RequestError(f"guided_decoding: {name} must be a string.")
            setattr(self, name, str.__str__(text))  # a subclass of str could not be sent
        if self.choice is not None:
            self.choice = _texts(self.choice)
        for name in ("json", "structural_tag"):
            setattr(self, name, _plain(name, getattr(self, name)))


def _texts(choice: object) -> list[str]:
    items = list(choice) if isinstance(choice, Iterable) and not isinstance(choice, str) else [choice]
    texts = [str.__str__(item) for item in items if isinstance(item, str)]
    if len(texts) < len(items):
        raise RequestError("guided_decoding: choice must be a list of strings.")
    return texts


class Grammar(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A grammar as the engine compiles it."""

    kind: Literal["json", "regex", "lark", "call"]  # a call's grammar is Lark, with the model's tokens as `<[1]>`
    text: str


class Thought(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The marks around a model's thought, as token ids, if its format is known.

    The front end, which has the tokenizer and the table of parsers, fills it in; the engine compares integers.
    """

    is_open: bool  # the prompt ends within the thought, so the answer begins in it
    openings: list[list[int]]  # any of these at the answer's beginning opens a thought; empty: no further thought
    closings: list[list[int]]  # any of these, anywhere after the opening, ends it
    forced: list[int]  # written to end it when its limit is reached
    calls: list[list[int]] = []  # any of these within the thought begins a call, which ends the thought


class CallGuide(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The grammar between one of these marks and the end of the call that it begins. Elsewhere the answer is free."""

    openings: list[list[int]]
    closings: list[int]  # any of these ends the call where its grammar may end; empty: the call ends with its grammar
    grammar: Grammar


def as_guided(value: Any) -> GuidedDecodingParams:
    """Convert a caller's value: the struct, or a dict of its fields."""
    if isinstance(value, GuidedDecodingParams):
        return value
    if not isinstance(value, Mapping):
        raise RequestError("guided_decoding must be GuidedDecodingParams, or a dict of its fields.")
    try:
        return GuidedDecodingParams(**value)
    except TypeError as error:
        raise RequestError(f"guided_decoding: {error}") from None


def from_response_format(value: Any) -> GuidedDecodingParams | None:
    """Convert OpenAI's `response_format`, or a pydantic model as OpenAI's client takes it; None: plain text."""
    if hasattr(value, "model_json_schema"):
        return GuidedDecodingParams(json=value)
    match value:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return GuidedDecodingParams(json_object=True)
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return GuidedDecodingParams(json=schema)
        case {"type": "structural_tag"}:
            return GuidedDecodingParams(structural_tag=value)
    raise RequestError(
        'response_format must be {"type": "text"}, {"type": "json_object"}, '
        '{"type": "json_schema", "json_schema": {"schema": …}} or {"type": "structural_tag", …}.'
    )


def _plain(name: str, value: Any) -> str | None:
    """The value as text, so that later changes to a dict don't matter. A pydantic model becomes its schema."""
    if hasattr(value, "model_json_schema"):
        try:
            value = value.model_json_schema()
        except Exception as error:  # a class without fields, or with fields of types without a schema
            raise RequestError(
                f"guided_decoding: {name}={shown(value)} makes no JSON schema ({error}). Give a pydantic model with "
                "fields of its own, or a schema as a dict."
            ) from None
    if value is None or isinstance(value, str):
        return value
    try:
        if isinstance(value, (dict, bool)):
            return json_text.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"guided_decoding: {name} can't be written as JSON ({error}).") from None
    raise RequestError(f"guided_decoding: {name} must be a dict or its JSON text, not {type(value).__name__}.")
