"""Opens a job's files by their names: JSON lines, perhaps compressed (`.gz`, `.zst`), or Parquet (`.parquet`).

Lines are read and written one by one, in any format.
"""

import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ....protocol.errors import ConfigError
from ...rows.lines import Line, bounded_lines, read_lines
from ...rows.prompts import check_columns

# How the names of files of vectors end (`vectors.py`).
_OF_VECTORS = (".npy", ".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst")
# Raises for a column of a table that is no key of a line.
CheckColumns = Callable[[Iterable[str]], None]


class Sink(Protocol):
    def write(self, line: bytes, /) -> object: ...


def require_format(path: Path, *, is_vectors: bool = False) -> None:
    """Raise if this file's format needs something that isn't installed, or isn't one of an output of vectors."""
    if is_vectors and not path.name.endswith(_OF_VECTORS):
        raise ConfigError(
            f"{path}: the name of a file of vectors ends in {', '.join(_OF_VECTORS[:-1])} or {_OF_VECTORS[-1]}, which "
            "says its format. Give the output such a name."
        )
    if not is_vectors and path.suffix == ".npy":
        raise ConfigError(f"{path}: an array holds no answers in text. `penstock embed` writes vectors to one.")
    if path.suffix == ".zst":
        _zstd()
    elif path.suffix == ".parquet":
        _parquet().pyarrow()


def lines_of(path: Path, raw: BinaryIO, check: CheckColumns = check_columns) -> Iterator[Line]:
    """The lines of a file, of which `raw` has the bytes."""
    if path.suffix == ".parquet":
        rows: Iterator[Line] = _parquet().lines_of(path, raw, check)
        return rows
    return read_lines(_unpacked(path, raw), str(path))


def is_packed(path: Path) -> bool:
    """Whether a file with this name isn't lines as they are."""
    return path.suffix in (".gz", ".zst", ".parquet")


def answer_lines_of(path: Path, raw: BinaryIO) -> Iterator[bytes]:
    """The lines of a file of answers, of which `raw` has the bytes. Lines that are too long are cut."""
    if path.suffix == ".parquet":
        answers: Iterator[bytes] = _parquet().answer_lines_of(path, raw)
        return answers
    return bounded_lines(_unpacked(path, raw))


def _unpacked(path: Path, raw: BinaryIO) -> BinaryIO:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if path.suffix == ".zst":
        return io.BufferedReader(_zstd()(raw))
    return raw


@contextmanager
def sink_of(path: Path, file: BinaryIO) -> Iterator[Sink]:
    """Takes the lines of a file with this path, and writes its bytes; the same bytes for the same lines."""
    if path.suffix == ".gz":
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed
    elif path.suffix == ".zst":
        with _zstd()(file, "wb") as packed:
            yield packed
    elif path.suffix == ".parquet":
        with _parquet().AnswerTable(file) as table:
            yield table
    else:
        yield file


def _parquet() -> Any:
    from . import parquet  # few jobs need it

    return parquet


def _zstd() -> Any:
    """A function that opens a packed file; raises if this Python has none."""
    for module, name in (("compression.zstd", "ZstdFile"), ("zstandard", "open")):
        try:
            return getattr(import_module(module), name)
        except ImportError:
            continue
    raise ConfigError(
        "Files in .zst need Python 3.14 or the package zstandard (pip install zstandard); or unpack the file: zstd -d."
    )
