"""Writes the vectors of a job: an array of numpy (`.npy`), a table (`.parquet`) or lines of JSON (`.jsonl`).

They are written row by row, so no more than some rows are in memory. An array has a row for each row of the job, which
is NaN where there is no vector; the other formats leave such a row out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy

from ....protocol.errors import ConfigError
from .formats import sink_of
from .parquet import pyarrow

_ROWS = 1024  # of a table that are in memory at once
_NAN = numpy.float32("nan").tobytes()
_JSON = msgspec.json.Encoder()


class VectorRow(NamedTuple):
    row: int
    line: bytes  # of JSON, without its vector
    vector: bytes  # float32


class Shape(NamedTuple):
    """Of the vectors of a whole job."""

    num_rows: int
    width: int  # numbers of a vector; 0 if there is none


Write = Callable[[VectorRow], object]


@contextmanager
def vectors_of(path: Path, file: BinaryIO, shape: Shape) -> Iterator[Write]:
    """Takes the rows of a file with this path, in order, and writes its bytes; the same bytes for the same rows."""
    if path.suffix == ".npy":
        with _Array(file, shape) as array:
            yield array.write
    elif path.suffix == ".parquet":
        with _Table(file, shape) as table:
            yield table.write
    else:
        with sink_of(path, file) as sink:
            yield lambda row: sink.write(_with_vector(row))


def _with_vector(row: VectorRow) -> bytes:
    vector = _JSON.encode(numpy.frombuffer(row.vector, numpy.float32).tolist())
    return row.line.removesuffix(b"}\n") + b',"embedding":' + vector + b"}\n"


def _checked(row: VectorRow, shape: Shape) -> bytes:
    if len(row.vector) != len(_NAN) * shape.width or row.row >= shape.num_rows:
        raise ConfigError(
            f"The vector of line {row.row + 1:,} has {len(row.vector) // len(_NAN):,} numbers where others have "
            f"{shape.width:,}: the journal is damaged. Restore it, or move it away to start again."
        )
    return row.vector


class _Array:
    """An array [rows, numbers] of float32, whose head comes first."""

    def __init__(self, file: BinaryIO, shape: Shape) -> None:
        self._file, self._shape = file, shape
        self._next = 0
        self._gap = _NAN * shape.width
        head = {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}
        numpy.lib.format.write_array_header_1_0(file, head)

    def __enter__(self) -> "_Array":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._fill(self._shape.num_rows)

    def write(self, row: VectorRow) -> None:
        self._fill(row.row)
        self._file.write(_checked(row, self._shape))
        self._next = row.row + 1

    def _fill(self, end: int) -> None:
        for _ in range(self._next, end):
            self._file.write(self._gap)


class _Table:
    def __init__(self, file: BinaryIO, shape: Shape) -> None:
        self._arrow = arrow = pyarrow()
        self._schema = arrow.schema(
            [
                ("row", arrow.int64()),
                ("id", arrow.string()),
                ("prompt_tokens", arrow.int64()),
                ("embedding", arrow.list_(arrow.float32(), shape.width)),
            ]
        )
        self._shape = shape
        self._writer = arrow.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[VectorRow] = []

    def __enter__(self) -> "_Table":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
        finally:
            self._writer.close()

    def write(self, row: VectorRow) -> None:
        self._rows.append(row)
        if len(self._rows) == _ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        arrow = self._arrow
        lines: list[dict[str, Any]] = [msgspec.json.decode(row.line) for row in self._rows]
        numbers = numpy.frombuffer(b"".join(_checked(row, self._shape) for row in self._rows), numpy.float32)
        columns = [
            arrow.array([row.row for row in self._rows], arrow.int64()),
            arrow.array([str(line.get("id", line["index"])) for line in lines], arrow.string()),
            arrow.array([line["usage"]["prompt_tokens"] for line in lines], arrow.int64()),
            arrow.FixedSizeListArray.from_arrays(arrow.array(numbers), self._shape.width),
        ]
        self._writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows.clear()
