"""Where a model comes from, and what errors call it.

A folder is called by its path. One that a GGUF file was translated to is known to nobody: errors speak of the file.
"""

from pathlib import Path
from typing import NamedTuple

from ...protocol.files.gguf.refusals import file_name
from .linked_files import linked_files

CONFIG_FILE = "config.json"


class Origin(NamedTuple):
    """As a text it is what its config is called, since most errors are about that."""

    folder: Path
    model: str  # what its weights are called
    config: str
    remedy: str  # what to do where the two contradict each other

    def __str__(self) -> str:
        return self.config


def origin_of(folder: Path) -> Origin:
    if (linked := linked_files(folder)) is None:
        remedy = f"Use the {CONFIG_FILE} that was published with these weights"
        return Origin(folder, str(folder), str(folder / CONFIG_FILE), remedy)
    name = file_name(linked.files[0])
    return Origin(folder, name, f"{name}'s metadata", "Use another file of this model")
