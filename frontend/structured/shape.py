"""Makes a `Grammar` from `GuidedDecodingParams`: one function for each format, and limits on sizes.

Faults that only the compiler can find are refused later, by the engine.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.parameters.guided import FORMS, Grammar, GuidedDecodingParams
from .ebnf import as_lark
from .schemas import plain_schema
from .tags import tags_grammar

MOST_BYTES = 512 << 10
MOST_REGEX_BYTES = 16 << 10
MOST_LEVELS = 64
_MOST_SAID = 1_000  # characters of an error message

# Between the tokens of JSON: enough for people and models, but bounded.
_WHITESPACE = r"(\x20|\x0A\x20{0,32})"


def grammar_of(guided: GuidedDecodingParams, *, is_compact: bool = False) -> Grammar:
    """The grammar for the engine to compile; raises `RequestError` for faults that show without compiling."""
    form = next(name for name in FORMS if getattr(guided, name) is not None)
    try:
        grammar = _FORMS[form](getattr(guided, form), is_compact or guided.disable_any_whitespace)
        _check_size(form, grammar.text, MOST_REGEX_BYTES if form == "regex" else MOST_BYTES)
    except RequestError as error:
        raise RequestError(_shortened(str(error))) from None
    return grammar


def _schema(value: str, is_compact: bool) -> Grammar:
    schema = _parsed("json", value)
    check_levels("json", schema)
    return Grammar("json", json.dumps(spaced(plain_schema(schema), is_compact), ensure_ascii=False))


def _any_object(value: bool, is_compact: bool) -> Grammar:
    return _schema('{"type": "object"}', is_compact)


def _regex(value: str, is_compact: bool) -> Grammar:
    return Grammar("regex", value)


def _choice(value: list[str], is_compact: bool) -> Grammar:
    if not value:
        raise RequestError("choice: the list is empty; give at least one answer.")
    _check_size("choice", "|".join(value))  # before they are escaped, which takes much longer
    return Grammar("regex", "|".join(map(re.escape, value)))


def _grammar(value: str, is_compact: bool) -> Grammar:
    _check_size("grammar", value)
    return Grammar("lark", as_lark(value))


def _structural_tag(value: str, is_compact: bool) -> Grammar:
    tag = _parsed("structural_tag", value)
    check_levels("structural_tag", tag)
    return Grammar("lark", tags_grammar(tag, lambda schema: spaced(plain_schema(schema), is_compact)))


_FORMS: dict[str, Callable[[Any, bool], Grammar]] = {
    "json": _schema,
    "json_object": _any_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}


def spaced(schema: dict[str, Any], is_compact: bool) -> dict[str, Any]:
    options = {"whitespace_flexible": False} if is_compact else {"whitespace_pattern": _WHITESPACE}
    return {**schema, "x-guidance": options}


def _parsed(form: str, value: str) -> Any:
    _check_size(form, value)
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{form}: it is not JSON ({error}).") from None


def _check_size(form: str, text: str, most: int = MOST_BYTES) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # half a surrogate pair, which no message can carry
        raise RequestError(f"{form}: it is no valid Unicode.") from None
    if size > most:
        raise RequestError(f"{form}: it has {size:,} bytes, and the limit is {most:,}.")


def check_levels(form: str, value: Any) -> None:
    """Check level by level: recursion would overflow on a nesting as deep as a person can write."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return
    raise RequestError(f"{form}: it is nested more than {MOST_LEVELS} levels deep.")


def _shortened(refusal: str) -> str:
    """Shorten an error message: its quotes may be as long as the input, and it is sent once for each prompt."""
    return refusal if len(refusal) <= _MOST_SAID else f"{refusal[: _MOST_SAID // 2]} … {refusal[-_MOST_SAID // 2 :]}"


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
