"""Checks a model's safetensors files before anything is read: they must exist, be complete and match their headers.

Reads headers only.
"""

import os
from pathlib import Path

from ....protocol.errors import ConfigError, ModelNotFoundError
from ....protocol.files.gguf.header import read_header
from ....protocol.files.gguf.refusals import file_name
from ....protocol.files.model_file import read_model_json, require_regular
from ....protocol.files.unreadable import is_pointer, pointer_refusal
from ...description.linked_files import LinkedFiles, linked_files
from .mapped_safetensors import read_header as read_safetensors_header
from .weight_files import own_weight_files, weight_files


def check_weight_files(folder: Path) -> None:
    """Refuse a folder in which a weight file is missing, a Git LFS pointer, or of the wrong length."""
    if (linked := linked_files(folder)) is not None:
        _check_gguf(linked)
        return
    _check_index(folder)
    for path in weight_files(folder):
        if not os.path.exists(path):  # a dangling link, as in a cache whose contents were removed
            raise ModelNotFoundError(f"{path} leads to {os.readlink(path)}, which is not there. Download it again.")
        require_regular(path)
        if is_pointer(path):
            raise ConfigError(pointer_refusal(path))
        with path.open("rb") as file:
            read_safetensors_header(path, file)


def _check_gguf(linked: LinkedFiles) -> None:
    for path in linked.all:
        if not path.exists():
            raise ModelNotFoundError(
                f"{file_name(path)} is no longer where it was when it was read first. Put it back there, or start with "
                "it where it is now."
            )
        read_header(path)  # checks that every tensor is within its file


def _check_index(folder: Path) -> None:
    path = folder / "model.safetensors.index.json"
    try:
        named = set(map(str, read_model_json(path)["weight_map"].values()))
    except (FileNotFoundError, KeyError, TypeError, AttributeError):
        return  # no index, or its reader reports the error
    missing = sorted(named - {each.name for each in own_weight_files(folder)})
    if missing and all(Path(name).name == name for name in missing):
        more = f" ({len(missing)} files are)" if len(missing) > 1 else ""
        raise ModelNotFoundError(
            f"{folder / missing[0]} is listed in the index but missing{more}. Download the model again as a whole."
        )
