"""Finds the GGUF files for a path: one file, all parts of a model from any of them, or a folder with one model in it.

Files next to a model's own are ignored, except for possible encoders. Hidden files are ignored: other systems leave
`._model.gguf` next to each file that they copy.
"""

import os
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.header import is_gguf
from ....protocol.files.gguf.parts import SUFFIX, part_number, parts_of
from ....protocol.files.gguf.refusals import file_name
from ....protocol.files.utf8 import shown as shown_path
from .file_names import likely_encoders, stands_beside

_MOST_NAMED = 8
# If a folder has weights of its own, those are the model.
_OWN_WEIGHTS = ("*.safetensors", "rank-*-of-*/*.safetensors")


class GgufFiles(NamedTuple):
    """A model in llama.cpp's format."""

    parts: tuple[Path, ...]  # in order
    encoders: tuple[Path, ...] = ()  # possible vision encoders, the likeliest first; headers tell whether one fits
    parameters: Path | None = None  # a store's sampling parameters for it (stored_parameters.py)

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in (*self.parts, *self.encoders[:1]))


def gguf_files(path: Path) -> GgufFiles | None:
    """The model that a path stands for; None if it has none in this format."""
    if os.path.isdir(path):  # False also for an impossible path
        return _in_folder(path)
    return files_of(path) if is_gguf_file(path) else None


def is_gguf_file(path: Path) -> bool:
    """Decide by name or first bytes: stores and caches have names of their own."""
    return os.path.isfile(path) and (path.suffix == SUFFIX or is_gguf(path))


def files_of(part: Path) -> GgufFiles:
    """The model that a file belongs to, with the encoders next to it."""
    parts, folder = parts_of(part), part.parent
    names = [path.name for path in _files(folder)]
    return GgufFiles(parts, tuple(folder / name for name in likely_encoders(parts[0].name, names)))


def model_files_in(folder: Path) -> list[Path]:
    """The files of all models in a folder; for a model in parts, the first part."""
    return [path for path in _files(folder) if is_model(path)]


def is_model(path: Path) -> bool:
    """Whether it is the file of a model; for a model in parts, the first part."""
    part = part_number(path.name)
    is_first = part is None or part.number == 1
    return is_first and path.suffix == SUFFIX and path.is_file() and not stands_beside(path.name)


def no_such_file(path: Path) -> str:
    """The error message for a missing file, with the existing ones, the nearest first."""
    name, folder = file_name(path), shown_path(path.parent)
    if not path.parent.is_dir():
        return f"No file {name} was found: the folder {folder} does not exist."
    others = [other.name for other in _files(path.parent)]
    if not others:
        return f"No file {name} lies in {folder}, nor any other GGUF file."
    others.sort(key=lambda other: -SequenceMatcher(None, path.name, other).ratio())
    return f"No file {name} lies in {folder}, which holds {_named(others)}."


def _named(names: list[str]) -> str:
    """Some of them, and how many more there are."""
    named = ", ".join(file_name(Path(name)) for name in names[:_MOST_NAMED])
    return named + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.glob(f"[!.]*{SUFFIX}")) if path.is_file())


def _in_folder(folder: Path) -> GgufFiles | None:
    if any(any(folder.glob(pattern)) for pattern in _OWN_WEIGHTS):
        return None
    models = model_files_in(folder)
    if not models:  # a later part alone names the first, which is missing
        models = [path for path in _files(folder) if not stands_beside(path.name)][:1]
    if len(models) <= 1:
        return files_of(models[0]) if models else None
    names = _named([path.name for path in models])
    raise ConfigError(f"{shown_path(folder)} holds {len(models)} models: {names}. Give the file of one of them.")
