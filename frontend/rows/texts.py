"""Rows of `penstock embed`: a text in each line, whose vector is wanted.

A line is plain text or JSON, as the file's name says; an object has its text under one of several names, or under the
one that the job is given, and then it may have any others.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from .lines import Line
from .prompts import Row, UnusableLine, checked_name, json_value

if TYPE_CHECKING:
    from ..session.session import Session

EMBED = "embed"  # the task of such a job
_TEXT = ("text", "input", "prompt", "prompt_token_ids")
_NAMES = ("id", "custom_id", "_id")
# Parameters that a line may have; all others shape the vectors, which have one shape in a file.
_PARAMETERS = ("prompt_name", "instruction", "truncate_prompt_tokens")
_JSON = (".jsonl", ".ndjson", ".json", ".parquet")
_PACKED = (".gz", ".zst")
_PLAIN_TEXT = ". To take lines of text as they are, name the file .txt, or give --plain"
_URL = "/v1/embeddings"


@dataclass(frozen=True)
class TextOptions:
    """How a job reads its texts, and what it computes of them."""

    params: PoolingParams
    is_plain: bool  # lines are texts, not JSON
    is_certain: bool = False  # the user has said so, whatever the lines look like
    field: str | None = None  # the key of an object's text; then its other keys have no meaning

    @classmethod
    def of(cls, source: Path, params: PoolingParams, *, plain: bool = False, field: str | None = None) -> "TextOptions":
        """Those of a file: its name says whether it is JSON, unless a field or plain text is wanted."""
        return cls(params, plain or (field is None and is_plain(source)), plain, field)

    @property
    def settings(self) -> dict[str, Any]:
        """What the vectors depend on, by the words for it."""
        given = msgspec.to_builtins(self.params)
        return {"task": EMBED, "pooling options": given, "plain text": self.is_plain, "text field": self.field or ""}


def is_plain(path: Path) -> bool:
    """Whether a file with this name has plain text."""
    name = path.name.lower()
    for end in _PACKED:
        name = name.removesuffix(end)
    return not name.endswith(_JSON)


def refuse_json(path: Path, lines: Iterable[Line]) -> None:
    """Refuse a file of plain text that begins with a JSON object."""
    first = next((line for line in lines if not isinstance(line, str) or line.strip()), None)
    if isinstance(first, str) and first.lstrip().startswith("{"):
        try:
            is_object = isinstance(json_value(first), dict)
        except UnusableLine:
            return
        if is_object:
            raise ConfigError(
                f"{path} begins with a JSON object, and by its name it is plain text. Name it .jsonl to take the "
                "texts from the objects, or give --plain to take its lines as they are."
            )


def refuse_array(path: Path, lines: Iterable[Line]) -> None:
    """Refuse a file of JSON that is one array of texts."""
    first = next((line for line in lines if not isinstance(line, str) or line.strip()), None)
    if not isinstance(first, str) or not first.lstrip().startswith("["):
        return
    try:
        value = json_value(first)
        is_array = isinstance(value, list) and any(isinstance(each, str | list | dict) for each in value)
    except UnusableLine:
        is_array = first.strip() == "["  # which goes on in the next line
    if is_array:
        raise ConfigError(
            f'{path} is one JSON array, and a line is one text. Write one text a line, such as "…" or '
            '{"text": "…"}; jq -c ".[]" does that.'
        )


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """One text, and what is computed of it."""

    prompt: Any
    params: PoolingParams

    def own_parameters(self, common: PoolingParams) -> list[str]:
        """The names of the parameters that the line has given, where all lines have these ones in common."""
        return [name for name in _PARAMETERS if getattr(self.params, name) != getattr(common, name)]

    def prompts(self, session: "Session[Any]", name: str) -> Iterator[tuple[Any, PoolingParams]]:
        yield self.prompt, self.params

    def label(self, number: int) -> str:
        return ""


def text_row(number: int, line: Line, options: TextOptions, params: SamplingParams) -> Row:
    """The row of a line that isn't empty; `number` is the line's, from 1."""
    if isinstance(line, RequestError):
        return Row(line, params)
    name = None
    try:
        if options.is_plain:
            return _row(line.rstrip("\r\n"), options.params, params)
        value = json_value(line, plain_text=_PLAIN_TEXT)
        if not isinstance(value, dict):
            return _row(_prompt(value), options.params, params)
        names = [key for key in _NAMES if value.get(key) is not None and key != options.field]
        name = checked_name(value.pop(names[0])) if names else None
        if options.field is not None:
            return _row(_own(value, options.field), options.params, params, name)
        if {"url", "body"} <= value.keys():
            value = _body(value, options.params)
        return _row(*_parts(value, options.params), params, name)
    except UnusableLine as error:
        return Row(RequestError(f"Line {number} {error}."), params)
    except RequestError as error:
        return Row(RequestError(f"Line {number}: {error}"), params, name)


def check_text_columns(field: str | None) -> Callable[[Iterable[str]], None]:
    """A function that raises for a column of a table that is no key of a line."""

    def check(names: Iterable[str]) -> None:
        columns = list(names)
        if field is not None and field not in columns:
            raise RequestError(f"There is no column {shown(field)}.{suggestion(field, columns)}")
        if field is None and not {"url", "body"} <= set(columns):
            _check_names(set(columns) - set(_NAMES))

    return check


def _row(prompt: Any, pooling: PoolingParams, params: SamplingParams, name: str | float | None = None) -> Row:
    return Row(prompt, params, name, question=TextQuestion(prompt, pooling))


def _is_prompt(value: Any) -> bool:
    """Whether it is one text, or one list of token ids."""
    return isinstance(value, str) or (isinstance(value, list) and all(type(each) is int for each in value))


def _prompt(value: Any) -> Any:
    if _is_prompt(value):
        return value
    raise UnusableLine("is neither a text, a list of token ids nor an object")


def _own(value: dict[str, Any], field: str) -> str:
    if not isinstance(text := value.get(field), str):
        raise RequestError(f"{field}={shown(text)}: must be text.")
    return text


def _parts(value: dict[str, Any], params: PoolingParams) -> tuple[Any, PoolingParams]:
    _check_names(value.keys())
    given = [key for key in _TEXT if value.get(key) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise RequestError(f"A line has one text, as {', '.join(_TEXT)}; this one has {found}.")
    own = {key: value[key] for key in _PARAMETERS if value.get(key) is not None}
    prompt = value[given[0]]
    if not _is_prompt(prompt):
        raise RequestError(f"{given[0]} must be one text, or one list of token ids.")
    return prompt, msgspec.structs.replace(params, **own) if own else params


def _check_names(names: Iterable[str]) -> None:
    known = (*_TEXT, *_PARAMETERS)
    if unknown := sorted(set(names) - set(known)):
        raise RequestError(
            f"{shown(unknown[0])} is no part of a line; it has {', '.join((*known, *_NAMES))}."
            f"{suggestion(unknown[0], known)} --field NAME takes the text from NAME, and ignores all else."
        )


def _body(value: dict[str, Any], params: PoolingParams) -> dict[str, Any]:
    """The part of one of OpenAI's lines that matters here."""
    if value["url"] != _URL or not isinstance(value["body"], dict):
        raise RequestError(f"url={shown(value['url'])}: embed takes lines for {_URL}; `penstock batch` takes others.")
    body = {key: own for key, own in value["body"].items() if key not in ("model", "user", "encoding_format")}
    if (wanted := body.pop("dimensions", None)) not in (None, params.dimensions):
        raise RequestError(f"dimensions={shown(wanted)}: all vectors of a file have as many; give --dimensions.")
    return body
