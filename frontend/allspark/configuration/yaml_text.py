"""YAML in and out, for configurations as DashInfer writes them.

PyYAML reads and writes it: huggingface_hub needs that, so it is there already. Only plain values pass, both ways.
"""

from pathlib import Path
from typing import Any

import yaml

from ....protocol.errors import ConfigError
from ....protocol.files.model_file import read_model_file
from ...file_replacement import write_whole


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Without aliases, by which a few hundred bytes could stand for any number of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not plain; write the value out")
        return super().compose_node(parent, index)


def as_yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text


def from_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping that a text holds; JSON is YAML, too."""
    try:
        found = yaml.load(text, _PlainLoader)
    except Exception as error:  # of any kind: PyYAML makes values of texts without a check
        what = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{where} is no YAML of plain values: {what}.") from error
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
        write_whole(path, as_yaml(value).encode(), 0o666)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
