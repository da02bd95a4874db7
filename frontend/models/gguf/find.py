"""Which GGUF files a path stands for: one file, all parts of a model by any of them, or a folder with one model in it.

Files beside a model's own are passed over: what it sees with (`mmproj`), and what quantizing needs (`imatrix`).
"""

import os
from collections.abc import Sequence
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.header import file_name, is_gguf
from ....protocol.files.gguf.parts import SUFFIX, is_later_part, parts_of
from ....protocol.files.utf8 import shown as shown_path
from .file_names import is_encoder, stands_beside

_PREFERRED = ("-f16", "-bf16")  # of files with the same encoder
_MOST_NAMED = 8
# Where a folder has weights of its own, those are the model.
_OWN_WEIGHTS = ("*.safetensors", "rank-*-of-*/*.safetensors")


def gguf_files(path: Path) -> tuple[Path, ...] | None:
    """The files of the model that a path stands for; None where it stands for none in this form."""
    if os.path.isdir(path):  # False also for what can be no path
        return _in_folder(path)
    if os.path.isfile(path) and (path.suffix == SUFFIX or is_gguf(path)):
        return parts_of(path)
    return None


def encoder_beside(files: Sequence[Path]) -> Path | None:
    """The file beside a model's with what it sees with, if one lies there; of several the one in the smallest floats.

    Whether it belongs to this model shows in its header.
    """
    folder = files[0].parent
    found = sorted(path for path in folder.glob(f"*{SUFFIX}") if is_encoder(path.name) and path.is_file())
    return min(found, key=lambda path: (_rank(path), path.name), default=None)


def _rank(path: Path) -> int:
    words = [number for number, word in enumerate(_PREFERRED) if word in path.name.lower()]
    return min(words, default=len(_PREFERRED))


def _in_folder(folder: Path) -> tuple[Path, ...] | None:
    if any(any(folder.glob(pattern)) for pattern in _OWN_WEIGHTS):
        return None
    found = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file() and not stands_beside(path.name))
    models = [path for path in found if not is_later_part(path)]
    if not found:
        return None
    if len(models) <= 1:  # a later part alone names the first, which is missing
        return parts_of((models or found)[0])
    names = [file_name(path) for path in models[:_MOST_NAMED]]
    more = f" and {len(models) - len(names)} more" if len(models) > len(names) else ""
    raise ConfigError(
        f"{shown_path(folder)} holds {len(models)} models: {', '.join(names)}{more}. Give the file of one of them."
    )
