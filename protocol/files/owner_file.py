"""Reads small files that an owner names: a configuration, keys, certificates. A pipe is allowed, but an endless file is
refused.
"""

from os import PathLike
from pathlib import Path

from ..errors import ConfigError

MOST_BYTES = 16 << 20


def read_owner_file(path: str | PathLike[str]) -> bytes:
    """Read a file; raises `OSError` if it can't be read."""
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} is longer than {MOST_BYTES >> 20} MiB, which no such file is.")
    return content
