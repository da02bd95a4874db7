"""File names that aren't UTF-8: the system allows them, and messages between processes don't."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def names_in_utf8() -> Iterator[None]:
    """Wrap code that encodes names into a message: raises a ConfigError for names that aren't UTF-8."""
    try:
        yield
    except UnicodeEncodeError as error:
        from ..errors import ConfigError  # not at the top: it imports msgspec, and `shown` must work without it

        raise ConfigError(f"{error.object!r} is not UTF-8, and names sent to a process must be. Rename it.") from None


def shown(path: Path) -> str:
    """The path for a person to read."""
    return os.fsencode(path).decode(errors="backslashreplace")
