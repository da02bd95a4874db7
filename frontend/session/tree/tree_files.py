"""Files that a tree writes for debugging: its timeline (`trace`) and its stream of messages (`record`).

Its processes write to new files next to the named ones. These get their names once the tree is ready, so that a failed
start overwrites no earlier file. A model's own files are never replaced.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.files.user_folders import reason
from ....protocol.options.config import EngineConfig
from ....protocol.pooling.form import MODULE_FILES
from ....protocol.processes.trace import Trace
from ...file_replacement import new_file, replaceable, status_of, take_name
from ...text.convert_tokenizer import VOCABULARY_FILES

OPTIONS = ("trace", "record")
# Options that may name an input file.
_READ_BY_NAME = ("chat_template", "reasoning_parser_plugin", "tool_parser_plugin")
# Patterns of the files that a model and its tokenizer are read from.
MODEL_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "rank-*-of-*/*", "*config.json"),
    *("tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", *VOCABULARY_FILES),
    *("chat_template.*", "additional_chat_templates/*"),
    *("config_sentence_transformers.json", "modules.json", *MODULE_FILES),
)


class TreeFiles:
    """New files from construction on: call `take_names` once the tree is ready, and `close` at its end."""

    def __init__(self, config: EngineConfig, *folders: Path) -> None:
        """`folders` are those of the model and its tokenizer."""
        self._config = config  # as given
        self._new: list[_New] = []
        written = {option: name for option in OPTIONS if (name := getattr(config, option))}
        try:
            for option, name in written.items():
                written[option] = self._written(option, name, folders)
            if config.trace:
                Trace.create(written["trace"])
        except OSError as error:
            self.close()
            which = " and ".join(f"{option}={getattr(config, option)!r}" for option in written)
            raise ConfigError(f"{which} cannot be written: {reason(error)}. Name another file.") from error
        except BaseException:
            self.close()
            raise
        self.config = msgspec.structs.replace(config, **written)  # for the processes

    def _written(self, option: str, name: str, folders: tuple[Path, ...]) -> str:
        """Where the processes write the file for this name."""
        target = replaceable(name)
        if target is None:
            return name
        if is_read(self._config, target, *folders):
            raise ConfigError(f"{option}={name!r} is a file that the model is read from. Name another file.")
        if any(is_same(target, new.target) for new in self._new):
            raise ConfigError(f"{' and '.join(OPTIONS)} are the same file, {name!r}. Name two files.")
        path, file = new_file(target)
        self._new.append(_New(path, file, target))
        return str(path)

    def take_names(self) -> None:
        while self._new:
            path, file, target = self._new[0]
            try:
                take_name(path, file, target)
            except OSError as error:
                raise ConfigError(f"{target} cannot be replaced: {reason(error)}. Name another file.") from error
            del self._new[0]
            os.close(file)

    def close(self) -> None:
        """Remove files that have no name of their own yet; safe to call twice."""
        while self._new:
            path, file, _ = self._new.pop()
            path.unlink(missing_ok=True)
            os.close(file)


class _New(NamedTuple):
    path: Path
    file: int
    target: Path


def is_read(config: EngineConfig, target: Path, *folders: Path) -> bool:
    """Whether the model in these folders is read from that file, whatever its name."""
    if status_of(target) is None:
        return False
    found = (path for folder in folders for pattern in MODEL_FILES for path in folder.glob(pattern))
    named = (getattr(config, option) for option in _READ_BY_NAME)
    return any(_is_at(target, path) for path in (*named, *found) if path is not None)


def _is_at(target: Path, path: str | Path) -> bool:
    with suppress(OSError, ValueError):  # a template's whole text is no path
        return os.path.samefile(target, path)
    return False


def is_same(one: Path, other: Path) -> bool:
    """Whether both are the same file, even if neither exists yet."""
    first, second = status_of(one), status_of(other)
    return one == other if first is None or second is None else os.path.samestat(first, second)
