"""The safetensors files of a folder, mapped into memory (`mappings.py`)."""

from io import BufferedReader
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ...protocol.errors import ConfigError, ModelNotFoundError
from .mappings import Mappings
from .tensor_names import is_paddles


class MappedFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mappings: Mappings[Any] = Mappings(_map)

    def mapped(self, file: str) -> Any:
        """A file of the folder, as `safe_open` gives it."""
        try:
            return self._mappings.of(self.folder / file)
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"{self.folder / file} is named by the index and missing.") from error

    def count(self, nbytes: int) -> None:
        """So many bytes were read of the mapped files."""
        self._mappings.count(nbytes)


def _map(path: Path, file: BufferedReader) -> Any:
    try:
        handle = safe_open(f"/proc/self/fd/{file.fileno()}", framework="pt")
    except SafetensorError as error:
        raise ConfigError(f"{path} is damaged: {error}. Download it again.") from error
    if (handle.metadata() or {}).get("format") in ("pd", "paddle") and not is_paddles(handle.keys()):
        raise ConfigError(
            f"{path} is in Paddle's own layout, of which only ERNIE-4.5's is read (ernie.*). Use the model as it is "
            "published for transformers."
        )
    return handle
