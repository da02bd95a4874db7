"""Prompts as a shell gives them: arguments, lines of text, or lines of JSON with parameters of their own.

Read one by one as they are wanted, so a file may be larger than memory. A line that cannot be a request becomes its own
refusal and ends alone. Knows nothing of models.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import RequestError
from ...protocol.sampling import SamplingParams

_PARAMETERS = {field.name for field in msgspec.structs.fields(SamplingParams)}


class Row(NamedTuple):
    """One prompt as `generate` takes it (a refusal among them), its parameters, and the name that its line gave it."""

    prompt: Any
    params: SamplingParams
    name: str | int | None = None


def from_arguments(texts: Iterable[str], params: SamplingParams) -> Iterator[Row]:
    """Each argument is a prompt as it stands, line ends included."""
    return (Row(text, params) for text in texts)


def from_lines(lines: Iterable[str], params: SamplingParams) -> Iterator[Row]:
    """Each line is a prompt; empty ones are none."""
    return (Row(text, params) for line in lines if (text := line.rstrip("\r\n")))


def from_json_lines(lines: Iterable[str], params: SamplingParams) -> Iterator[Row]:
    """Each line is a text, a list of token ids, or an object.

    An object holds the parts of a prompt, an `id` that is handed through, and any sampling parameter beside them.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _row(number, line, params)


def _row(number: int, line: str, params: SamplingParams) -> Row:
    try:
        value = json.loads(line)
    except ValueError as error:
        return Row(RequestError(f"Line {number} is not JSON: {error}."), params)
    if isinstance(value, (str, list)):
        return Row(value, params)
    if not isinstance(value, dict):
        return Row(RequestError(f"Line {number} is neither a text, a list of token ids nor an object."), params)
    name = value.pop("id", None)
    own = {key: value.pop(key) for key in value.keys() & _PARAMETERS}
    try:
        return Row(value, msgspec.structs.replace(params, **own), name)
    except RequestError as error:
        return Row(RequestError(f"Line {number}: {error}"), params, name)
