"""Parquet files of prompts and of answers; needs the extra `penstock[parquet]`.

A row of prompts becomes a line of JSON, so its columns are the keys of such a line; null is as good as no column.
A column of nested values (messages, tools, a batch line's body) may also hold them as JSON. Answers become a few
columns for people who analyse them, and one with the line that a file of JSON lines would have.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from ....protocol.errors import ConfigError, PenstockError, RequestError

_ROWS = 1024  # that are in memory at once; of an input also the pages that they are in
_AS_JSON = ("messages", "tools", "chat_template_kwargs", "body", "guided_decoding", "response_format", "logit_bias")
_COLUMNS = ("id", "text", "finish_reason", "prompt_tokens", "output_tokens", "answer")
_JSON = msgspec.json.Encoder()


def pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "Parquet files need the package pyarrow: pip install 'penstock[parquet]'. Or give a file of JSON lines."
        ) from None
    return pyarrow


# --- prompts ----------------------------------------------------------------------------------------------------------


def lines_of(path: Path, raw: BinaryIO, check_columns: Callable[[Iterable[str]], None]) -> Iterator[str]:
    arrow = pyarrow()
    try:
        with arrow.parquet.ParquetFile(raw, pre_buffer=False) as file:
            _check_columns(path, file.schema_arrow.names, check_columns)
            for batch in file.iter_batches(batch_size=_ROWS):
                for row in batch.to_pylist():
                    yield _JSON.encode(_without_nulls(_parsed(row))).decode()
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> PenstockError:
    return PenstockError(f"{path} cannot be read as a Parquet file: {' '.join(str(error).split())}")


def _check_columns(path: Path, names: list[str], check_columns: Callable[[Iterable[str]], None]) -> None:
    try:
        check_columns(names)
    except RequestError as error:
        raise ConfigError(f"{path}: {error} Write the columns that are meant to a file of their own.") from None


def _parsed(row: dict[str, Any]) -> dict[str, Any]:
    for name in _AS_JSON:
        if isinstance(value := row.get(name), str):
            with suppress(msgspec.DecodeError):  # the row will be refused for what it holds
                row[name] = msgspec.json.decode(value)
    return row


def _without_nulls(value: Any) -> Any:
    """Structs have all of their fields in each row; null stands for those that a row lacks."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


# --- answers ----------------------------------------------------------------------------------------------------------


def answer_lines_of(path: Path, raw: BinaryIO) -> Iterator[bytes]:
    """The lines that `AnswerTable` has kept."""
    arrow, name = pyarrow(), _COLUMNS[-1]
    try:
        with arrow.parquet.ParquetFile(raw, pre_buffer=False) as file:
            if name not in file.schema_arrow.names:
                raise ConfigError(f"{path} has no column {name!r}, so it is no table of answers.")
            for batch in file.iter_batches(batch_size=_ROWS, columns=[name]):
                yield from (f"{line}\n".encode(errors="surrogatepass") for line in batch.column(0).to_pylist())
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


class AnswerTable:
    """Writes lines of answers as rows; a context manager, at whose end the file is complete."""

    def __init__(self, file: BinaryIO) -> None:
        arrow = pyarrow()
        types = {name: arrow.int64() if name.endswith("_tokens") else arrow.string() for name in _COLUMNS}
        self._arrow = arrow
        self._schema = arrow.schema(list(types.items()))
        self._writer = arrow.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> "AnswerTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        self._writer.close()

    def write(self, line: bytes) -> None:
        self._rows.append(_row(line))
        if len(self._rows) == _ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_batch(self._arrow.RecordBatch.from_pylist(self._rows, self._schema))
        self._rows.clear()


def _row(line: bytes) -> dict[str, Any]:
    answer = msgspec.json.decode(line)
    name = answer.get("custom_id", answer.get("id", answer.get("index")))
    body = answer["response"]["body"] if "response" in answer else answer
    usage = body.get("usage") or {}
    text, reason = _first(body)
    return {
        "id": str(name),
        "text": text,
        "finish_reason": reason,
        "prompt_tokens": usage.get("prompt_tokens", usage.get("input_tokens")),
        "output_tokens": usage.get("completion_tokens", usage.get("output_tokens")),
        "answer": line.decode().removesuffix("\n"),
    }


def _first(body: dict[str, Any]) -> tuple[str | None, str | None]:
    """The text of the first answer, and why it ended."""
    match body:
        case {"output": items}:  # of a response
            parts = [part for item in items if item.get("type") == "message" for part in item["content"]]
            return "".join(part.get("text", "") for part in parts), body.get("status")
        case {"choices": [{"message": {"content": text}, "finish_reason": reason}, *_]}:
            return text, reason
        case {"choices": [{"text": text, "finish_reason": reason}, *_]}:
            return text, reason
        case {"outputs": [{"text": text, "finish_reason": reason}, *_]}:
            return text, reason
    return None, None
