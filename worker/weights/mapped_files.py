"""The safetensors files of a folder, each mapped into memory when it is first read.

What was read of a mapped file counts as this process's memory until the mapping is given up, so all files are mapped
anew after so many bytes: loading a model takes no more than its packed weights and a little. Files stay open, so that a
mapping made later is of the same file, whatever has taken its name.
"""

from io import BufferedReader
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.model_file import require_regular
from .tensor_names import is_paddles

_MOST_READ = 64 << 20  # bytes, before the files are mapped anew


class MappedFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, BufferedReader] = {}
        self._mapped: dict[str, Any] = {}
        self._num_read = 0  # bytes since they were mapped

    def mapped(self, file: str) -> Any:
        """A file of the folder, as `safe_open` gives it."""
        if file not in self._mapped:
            handle = self._map(file)
            if (handle.metadata() or {}).get("format") in ("pd", "paddle") and not is_paddles(handle.keys()):
                raise ConfigError(
                    f"{self.folder / file} is in Paddle's own layout, of which only ERNIE-4.5's is read (ernie.*). Use "
                    "the model as it is published for transformers."
                )
            self._mapped[file] = handle
        return self._mapped[file]

    def count(self, nbytes: int) -> None:
        """So many bytes were read of the mapped files."""
        self._num_read += nbytes
        if self._num_read > _MOST_READ:
            # Views that are still in use keep their own mapping.
            self._mapped.clear()
            self._num_read = 0

    def _map(self, file: str) -> Any:
        try:
            if file not in self._open:
                require_regular(self.folder / file)
                self._open[file] = open(self.folder / file, "rb")
            return safe_open(f"/proc/self/fd/{self._open[file].fileno()}", framework="pt")
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"{self.folder / file} is named by the index and missing.") from error
        except SafetensorError as error:
            raise ConfigError(f"{self.folder / file} is damaged: {error}. Download it again.") from error
