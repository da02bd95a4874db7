"""The GGUF files that a translated model folder stands for, by its `gguf.json`. Reads no weights and imports no torch.

Such a folder has a config, a tokenizer and templates as any model's, and in place of weights the paths of files that
lie elsewhere: {"files": [all parts of the model, in order], "mmproj": the encoder's file, if it has one}.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from ....protocol.errors import ConfigError
from ....protocol.files.model_file import read_model_file

LINK = "gguf.json"


class LinkedFiles(NamedTuple):
    files: tuple[Path, ...]
    mmproj: Path | None = None

    @property
    def all(self) -> list[Path]:
        return [*self.files, *([] if self.mmproj is None else [self.mmproj])]


class _Link(msgspec.Struct):
    files: list[str]
    mmproj: str | None = None


def linked_files(folder: Path) -> LinkedFiles | None:
    """None: the folder holds weights of its own, or none."""
    try:
        found = msgspec.json.decode(read_model_file(folder / LINK), type=_Link)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{folder / LINK} doesn't name a model's GGUF files: {error}.") from error
    if not found.files:
        raise ConfigError(f"{folder / LINK} names no GGUF file.")
    mmproj = None if found.mmproj is None else Path(found.mmproj)
    return LinkedFiles(tuple(map(Path, found.files)), mmproj)
