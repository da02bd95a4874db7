"""The origin of a model, and its name in errors.

A folder is called by its path. Users don't know the folder that a GGUF file was translated to, so errors name the file.
"""

from pathlib import Path
from typing import NamedTuple

from ...protocol.files.gguf.refusals import file_name
from .linked_files import linked_files

CONFIG_FILE = "config.json"


class Origin(NamedTuple):
    """The names of a model's config and weights; as a text it is the config's, since most errors are about that."""

    folder: Path
    model: str  # name of its weights
    config: str
    remedy: str  # what to do if config and weights contradict each other

    def __str__(self) -> str:
        return self.config


def origin_of(folder: Path) -> Origin:
    if (linked := linked_files(folder)) is None:
        remedy = f"Use the {CONFIG_FILE} that was published with these weights"
        return Origin(folder, str(folder), str(folder / CONFIG_FILE), remedy)
    name = file_name(linked.files[0])
    return Origin(folder, name, f"{name}'s metadata", "Use another file of this model")
