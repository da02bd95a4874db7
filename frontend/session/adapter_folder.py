"""Checks the folder of an adapter that a caller names, before it is loaded."""

import os
from pathlib import Path

from ...protocol.errors import AdapterError, ModelNotFoundError


def adapter_folder(name: str, path: str | os.PathLike[str]) -> str:
    """The folder's absolute path; raises if the name is no text or the folder doesn't exist."""
    if not isinstance(name, str) or not name:
        raise AdapterError(f"An adapter's name must be text, and {name!r} is not.", "files")
    folder = Path(os.path.expanduser(path)).absolute()
    if not os.path.isdir(folder):
        raise ModelNotFoundError(f"There is no adapter at {folder}: it must be a folder that PEFT saved.")
    return str(folder)
