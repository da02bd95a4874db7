"""Reads files that a stranger may have named or made: the small files of a model's folder, and those of requests.

The path may lead to a pipe or an endless file. So anything but a regular file is refused without waiting, and so is a
file longer than any real one. Results made from a file are reused as long as its identity is the same.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ConfigError, PenstockError
from .unreadable import is_pointer, pointer_refusal

# The longest tokenizer.json files in use have some 35 MB.
MOST_BYTES = 256 << 20
# Opening must not wait for a pipe's other end, nor make a terminal this process's controlling one.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class IrregularFileError(OSError):
    """The path is a pipe, a device, a socket or a folder."""


def open_regular(path: str | Path) -> int:
    """Open a file to read. Raises `OSError`, `IrregularFileError` among them; never waits."""
    _check_kind(os.stat(path))  # some devices act on being opened
    file = os.open(path, _FLAGS)
    try:
        _check_kind(os.fstat(file))  # it may have been replaced
    except BaseException:
        os.close(file)
        raise
    return file


def read_regular(path: str | Path, most_bytes: int) -> bytes | None:
    """The content of a file; None if it is longer than the bound. Raises like `open_regular`."""
    file = open_regular(path)
    try:
        if os.fstat(file).st_size > most_bytes:
            return None
        content = bytearray()
        # Reading one byte more than the bound detects a file that grows.
        while len(content) <= most_bytes and (piece := os.read(file, min(most_bytes + 1 - len(content), 16 << 20))):
            content += piece
        return bytes(content) if len(content) <= most_bytes else None
    finally:
        os.close(file)


def read_model_file(path: Path) -> bytes:
    """Read a file. Raises `FileNotFoundError` if there is none, or a `ConfigError` that names what is there instead."""
    with _in_words(path):
        content = read_regular(path, MOST_BYTES)
    if content is None:
        raise ConfigError(f"{path} cannot be used: it is longer than {MOST_BYTES >> 20} MiB, which no such file is.")
    return content


def read_model_text(path: Path) -> str:
    try:
        return read_model_file(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}.") from error


def read_model_json(path: Path) -> Any:
    text = read_model_text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        if is_pointer(path):
            raise ConfigError(pointer_refusal(path)) from None
        raise ConfigError(f"{path} is not valid JSON: {error}.") from error
    except RecursionError:
        raise ConfigError(f"{path} is nested too deep.") from None


def read_model_settings(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing or holds something else."""
    try:
        content = read_model_json(path)
    except FileNotFoundError:
        return {}
    return content if isinstance(content, dict) else {}


@contextmanager
def values_of(file: Path | str) -> Iterator[None]:
    """Turn errors about a file's values into one that names the file."""
    try:
        yield
    except PenstockError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise ConfigError(f"{file} holds a value that cannot be used: {error}.") from error


def file_identity(path: Path) -> tuple[int, ...]:
    """A tuple that changes when the file is replaced or written to.

    It includes the time of the last change, which, unlike that of modification, can't be set back.
    """
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def require_regular(path: Path) -> None:
    """Check a file that a library will open by its name; raises like `read_model_file`."""
    with _in_words(path):
        _check_kind(os.stat(path))


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except IrregularFileError as error:
        raise ConfigError(f"{path} cannot be used: {error.strerror}, and a model's files are regular ones.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be used: {error.strerror}.") from error


def _check_kind(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise IrregularFileError(errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no file')}")


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
