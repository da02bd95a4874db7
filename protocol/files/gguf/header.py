"""Reads the header of one GGUF file: version, metadata, and the list of its tensors.

Every count, length and offset is checked against the file's size before use, so a hostile file costs an error message
and little memory.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

from ..model_file import IrregularFileError, open_regular
from ..unreadable import is_pointer
from .checked_bytes import CheckedBytes
from .metadata import read_metadata
from .refusals import MalformedError, unreadable
from .tensor_list import TensorInfo, read_tensors

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_POINTER = (
    "is a Git-LFS pointer, for its repository was cloned without Git LFS",
    "Run `git lfs pull` in its folder, or download it again.",
)


class Header(NamedTuple):
    version: int
    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]  # in the file's order


def read_header(path: Path) -> Header:
    """Read the header of one file; raises a `ConfigError` that says why it can't be used, and what to do."""
    try:
        file = open_regular(path)
        try:
            return _header(CheckedBytes(file, os.fstat(file).st_size))
        finally:
            os.close(file)
    except IrregularFileError:
        raise MalformedError("is not a regular file").said_of(path) from None
    except MalformedError as error:
        raise (MalformedError(*_POINTER) if is_pointer(path) else error).said_of(path) from None
    except OSError as error:
        raise unreadable(path, error) from None


def is_gguf(path: Path) -> bool:
    """Whether a file begins with GGUF's magic, whatever its name."""
    try:
        file = open_regular(path)
    except OSError:
        return False
    try:
        return os.pread(file, len(MAGIC), 0) == MAGIC
    except OSError:
        return False
    finally:
        os.close(file)


def _header(content: CheckedBytes) -> Header:
    if content.size < len(MAGIC) or content.take(len(MAGIC)) != MAGIC:
        raise MalformedError("does not begin as a GGUF file does")
    version = content.u32()
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "big"), "little") in VERSIONS:
            raise MalformedError("is written for big-endian machines", "Use one for little-endian machines.")
        raise MalformedError(
            f"has version {version:,} of the format", f"Use one in version {' or '.join(map(str, VERSIONS))}."
        )
    num_tensors, num_keys = content.u64(), content.u64()
    metadata = read_metadata(content, num_keys)
    return Header(version, metadata, read_tensors(content, num_tensors, metadata))
