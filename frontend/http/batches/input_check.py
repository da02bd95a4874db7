"""Checks the input file of a batch: the form of each line, and what all lines have to agree on.

Bodies are checked when their turn comes; a wrong one fails alone.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError, RequestError
from ....protocol.fields.rules import shown
from ...rows.lines import read_lines
from ...rows.prompts import UnusableLine, json_value
from ..answers.errors import ApiError
from ..options import HttpOptions
from ..requests.decoding import Outline
from ..schemas.files import LineFault

_MOST_FAULTS = 50
_KEYS = ("custom_id", "method", "url", "body")


class _WrongLine(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


@dataclass
class InputCheck:
    """The findings about one file; `check` fills them in."""

    endpoint: str
    options: HttpOptions
    num_rows: int = 0
    model: str | None = None
    faults: list[LineFault] = field(default_factory=list)
    _first_lines: dict[bytes, int] = field(default_factory=dict)  # by digest of the custom_id

    def check(self, path: Path) -> None:
        try:
            self._check_lines(path)
        except ConfigError as error:  # the whole file is of another kind
            self.faults.append(LineFault(code="invalid_file", message=str(error)))

    def _check_lines(self, path: Path) -> None:
        with open(path, "rb") as file:
            for number, line in enumerate(read_lines(file, "The file"), start=1):
                if isinstance(line, str) and not line.strip():
                    continue
                self.num_rows += 1
                try:
                    self._check_line(number, line)
                except _WrongLine as wrong:
                    self.faults.append(LineFault(code=wrong.code, message=str(wrong), line=number, param=wrong.param))
                if len(self.faults) >= _MOST_FAULTS:
                    return
        if not self.num_rows:
            self.faults.append(LineFault(code="empty_file", message="The file has no requests: write one a line."))

    def _check_line(self, number: int, line: str | RequestError) -> None:
        if self.num_rows > self.options.max_batch_lines:
            sentence = f"A batch has at most {self.options.max_batch_lines:,} requests (option max_batch_lines)."
            raise _WrongLine("too_many_requests", sentence)
        value = self._value(line)
        for key in _KEYS:
            if key not in value:
                raise _WrongLine("missing_required_parameter", f"The line has no {key}.", key)
        self._check_custom_id(number, value["custom_id"])
        if value["method"] != "POST":
            raise _WrongLine("invalid_method", f"method={shown(value['method'])}: must be POST.", "method")
        if value["url"] != self.endpoint:
            sentence = f"url={shown(value['url'])}: the batch is for {self.endpoint}."
            raise _WrongLine("mismatched_url", sentence, "url")
        if not isinstance(value["body"], dict):
            raise _WrongLine("invalid_body", f"body={shown(value['body'])}: must be an object.", "body")
        self._check_model(value["body"].get("model"))

    def _value(self, line: str | RequestError) -> dict[str, Any]:
        if isinstance(line, RequestError):
            raise _WrongLine("invalid_json_line", str(line))
        try:
            encoded = line.encode()
            if len(encoded) > self.options.max_body_bytes:
                sentence = f"The line has more than {self.options.max_body_bytes:,} bytes (option max_body_bytes)."
                raise _WrongLine("line_too_long", sentence)
            Outline.of(encoded).check()
            value = json_value(line)
        except ApiError as error:
            raise _WrongLine("line_too_long", str(error)) from None
        except UnusableLine as error:
            raise _WrongLine("invalid_json_line", f"The line {error}.") from None
        if not isinstance(value, dict):
            raise _WrongLine("invalid_json_line", "The line is no JSON object.")
        return value

    def _check_custom_id(self, number: int, custom_id: Any) -> None:
        if not isinstance(custom_id, str):
            raise _WrongLine("invalid_custom_id", f"custom_id={shown(custom_id)}: must be a text.", "custom_id")
        digest = blake2b(custom_id.encode(), digest_size=16).digest()
        if (first := self._first_lines.setdefault(digest, number)) != number:
            sentence = f"custom_id={shown(custom_id)}: line {first:,} has it, too; give each line its own."
            raise _WrongLine("duplicate_custom_id", sentence, "custom_id")

    def _check_model(self, model: Any) -> None:
        if not isinstance(model, str):
            raise _WrongLine("missing_required_parameter", "body.model: must be a model's name.", "body.model")
        if self.model is None:
            self.model = model
        elif model != self.model:
            sentence = f"body.model={shown(model)}: the lines before name {shown(self.model)}; a batch has one model."
            raise _WrongLine("mismatched_model", sentence, "body.model")


def custom_ids(path: Path, is_wanted: Callable[[int], bool]) -> Iterator[str]:
    """The custom ids of the rows that are wanted, of a file that was checked."""
    with open(path, "rb") as file:
        row = 0
        for line in read_lines(file, "The file"):
            if isinstance(line, str) and line.strip():
                if is_wanted(row):
                    with suppress(UnusableLine):
                        yield json_value(line)["custom_id"]
                row += 1
