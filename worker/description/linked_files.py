"""Finds the GGUF files that a translated model folder links to in its `gguf.json`. Reads no weights, imports no torch.

Such a folder has a config, a tokenizer and templates like any model's, but instead of weights it has the paths of files
stored elsewhere.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.files.gguf.link import LINK_FILE, Link
from ...protocol.files.model_file import read_model_file

_ANEW = "Remove the folder that it lies in, and start with the GGUF file: it is made anew."


class LinkedFiles(NamedTuple):
    files: tuple[Path, ...]
    encoder: Path | None = None  # the file of the vision encoder

    @property
    def all(self) -> list[Path]:
        return [*self.files, *([] if self.encoder is None else [self.encoder])]


def linked_files(folder: Path) -> LinkedFiles | None:
    """Read the links; None if the folder has its own weights, or none."""
    try:
        found = msgspec.json.decode(read_model_file(folder / LINK_FILE), type=Link)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{folder / LINK_FILE} doesn't name a model's GGUF files ({error}). {_ANEW}") from error
    if not found.files:
        raise ConfigError(f"{folder / LINK_FILE} names no GGUF file. {_ANEW}")
    encoder = None if found.encoder is None else Path(found.encoder)
    return LinkedFiles(tuple(map(Path, found.files)), encoder)
