"""The GGUF files that a translated model folder stands for, by its `gguf.json`. Reads no weights and imports no torch.

Such a folder has a config, a tokenizer and templates as any model's, and in place of weights the paths of files that
lie elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from ....protocol.errors import ConfigError, ModelNotFoundError
from ....protocol.files.gguf.link import LINK_FILE, Link
from ....protocol.files.gguf.refusals import file_name
from ....protocol.files.model_file import read_model_file

# What is said of a model's folder, and of a file in its place.
_IN_ITS_PLACE = {
    "Use the config.json that was published with these weights": "Download the file again, or use another one",
    "its config.json": "its metadata",
}


class LinkedFiles(NamedTuple):
    files: tuple[Path, ...]
    encoder: Path | None = None  # with what it sees with

    @property
    def all(self) -> list[Path]:
        return [*self.files, *([] if self.encoder is None else [self.encoder])]


def linked_files(folder: Path) -> LinkedFiles | None:
    """None: the folder holds weights of its own, or none."""
    try:
        found = msgspec.json.decode(read_model_file(folder / LINK_FILE), type=Link)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{folder / LINK_FILE} doesn't name a model's GGUF files: {error}.") from error
    if not found.files:
        raise ConfigError(f"{folder / LINK_FILE} names no GGUF file.")
    encoder = None if found.encoder is None else Path(found.encoder)
    return LinkedFiles(tuple(map(Path, found.files)), encoder)


@contextmanager
def said_of_the_file(folder: Path) -> Iterator[None]:
    """Where a folder is a translated one, which nobody knows, let errors about it speak of the file that was given."""
    try:
        yield
    except (ConfigError, ModelNotFoundError) as error:
        if (linked := linked_files(folder)) is None:
            raise
        name = file_name(linked.files[0])
        said = str(error).replace(str(folder / "config.json"), f"The metadata of {name}").replace(str(folder), name)
        for of_folders, of_files in _IN_ITS_PLACE.items():
            said = said.replace(of_folders, of_files)
        raise (ConfigError if isinstance(error, ConfigError) else ModelNotFoundError)(said) from error
