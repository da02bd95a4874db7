"""Names of files that aren't UTF-8: the system has them, and messages between processes don't."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def names_in_utf8() -> Iterator[None]:
    """Around what encodes a message with names in it."""
    try:
        yield
    except UnicodeEncodeError as error:
        from .errors import ConfigError  # here, not above: it imports msgspec, and what is shown needs none

        raise ConfigError(
            f"{error.object!r} is not UTF-8, and a name that a process is told of must be. Rename it."
        ) from None


def shown(path: Path) -> str:
    """For a person to read."""
    return os.fsencode(path).decode(errors="backslashreplace")
