"""Loads parsers that are not Penstock's own: from a Python file, or from an installed package's entry points.

A file has them by name in `REASONING` or `TOOL_CALLS`; an entry point is one row. Both are code that the user chose,
run in the user's own process.
"""

import importlib.util
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ...protocol.errors import ConfigError
from ...protocol.plugins import installed
from .families import plain_name

Row = TypeVar("Row")


def rows_of_file(path: str, option: str, table: str, kind: type[Row]) -> dict[str, Row]:
    """What the file that `option` names has in its `table`."""
    module = _module(path, option)
    rows = getattr(module, table, None)
    if not isinstance(rows, Mapping) or not rows:
        raise ConfigError(f"{option}={path!r}: it must define {table}, a dict of names and {kind.__name__} rows.")
    return {plain_name(str(name)): _checked(row, kind, f"{table}[{name!r}] in {path}") for name, row in rows.items()}


def row_of_entry_point(name: str, group: str, kind: type[Row]) -> Row | None:
    for point in installed(group):
        if plain_name(point.name) == name:
            where = f"the entry point {point.name} = {point.value} ({group})"
            try:
                row = point.load()
            except Exception as error:
                raise ConfigError(f"{where} can't be loaded: {type(error).__name__}: {error}") from error
            return _checked(row, kind, where)
    return None


def names_of_entry_points(group: str) -> list[str]:
    return sorted(plain_name(point.name) for point in installed(group))


def _checked(row: Any, kind: type[Row], where: str) -> Row:
    if not isinstance(row, kind):
        raise ConfigError(f"{where} is a {type(row).__name__}; it must be a {kind.__name__} (docs/adding-a-parser.md).")
    return row


def _module(path: str, option: str) -> ModuleType:
    file = Path(os.path.expanduser(path))
    if not os.path.isfile(file):
        raise ConfigError(f"{option}={path!r} is no file. Give the path of a Python file with the rows.")
    file = file.resolve()
    try:
        return _loaded(file, os.stat(file).st_mtime_ns)
    except Exception as error:
        raise ConfigError(f"{option}={path!r} can't be loaded: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=16)
def _loaded(file: Path, modified: int) -> ModuleType:
    """Once for each version of the file."""
    specification = importlib.util.spec_from_file_location(f"penstock_plugin_{file.stem}", file)
    if specification is None or specification.loader is None:
        raise ValueError("its name must end in .py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
