"""YAML in and out, for configurations as DashInfer writes them.

PyYAML reads and writes it: huggingface_hub needs that, so it is there already. Only plain values pass, both ways.
"""

import os
from pathlib import Path
from typing import Any

import yaml

from ...protocol.errors import ConfigError
from ...protocol.files.model_file import read_model_file
from ..file_replacement import new_file, take_name


def as_yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text


def from_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping that a text holds; JSON is YAML, too."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{where} is no YAML: {str(error).splitlines()[0]}.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where} must hold names and values, not {type(found).__name__}.")
    return found


def read_yaml(path: Path) -> dict[str, Any]:
    path = path.expanduser()
    try:
        return from_yaml(read_model_file(path).decode(), str(path))
    except FileNotFoundError:
        raise ConfigError(f"There is no {path}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8.") from None


def write_yaml(path: Path, value: Any) -> None:
    """It appears under its name when it is complete."""
    try:
        unfinished, descriptor = new_file(path)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            try:
                file.write(as_yaml(value))
                file.flush()
                take_name(unfinished, descriptor, path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
