"""Digests of a model's files by their content. They are kept, so that a large file is read once.

A digest is found again by the file's stamp.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.files.cache_folder import cache_folder
from ...protocol.files.gguf.link import LINK_FILE, Link
from ...protocol.files.own_folder import own_folder
from ...protocol.pooling.form import MODULE_FILES
from ..file_replacement import write_whole
from ..session.tree.tree_files import MODEL_FILES
from .file_stamps import stamp_of
from .sentence_modules import MODULES

_WHAT = "digests of models' files"
_MOST_KEPT = 4096


def digest_of_files(paths: Iterable[Path], folder: Path) -> str:
    """One digest of several files: their names within a folder, and their contents."""
    lines = [f"{os.path.relpath(path, folder)} {_digest(path)}" for path in sorted(set(paths))]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def digest_of_model(folder: Path) -> str:
    """One digest of what a model is read from, the same on every machine wherever its files lie."""
    lines = []
    for path in set(weight_files(folder)):
        name = path.relative_to(folder) if path.is_relative_to(folder) else path.name
        lines.append(f"{name} {_digest(path)}")
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def weight_files(folder: Path) -> Iterator[Path]:
    """The files that a model's weights and its description are read from, those of sentence-transformers' modules
    among them."""
    patterns = ("*.safetensors", "*.safetensors.index.json", "rank-*-of-*/*", "config.json", MODULES, *MODULE_FILES)
    for pattern in patterns:
        yield from folder.glob(pattern)
    if (link := folder / LINK_FILE).is_file():
        found = msgspec.json.decode(link.read_bytes(), type=Link)
        yield from map(Path, filter(None, [*found.files, found.encoder]))


def tokenizer_files(folder: Path) -> Iterator[Path]:
    """The files of the tokenizer and the templates."""
    weights = set(weight_files(folder))
    for pattern in MODEL_FILES:
        yield from (path for path in folder.glob(pattern) if path not in weights and path.is_file())


def _digest(path: Path) -> str:
    name = _name(path)
    folder = None
    with suppress(OSError, ConfigError):  # nothing can be kept: the file is read each time
        folder = own_folder(cache_folder(), "digests", _WHAT)
        if len(kept := (folder / name).read_text()) == 64:
            return kept
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if folder is not None and name == _name(path):  # else it was changed meanwhile
        with suppress(OSError):
            _keep(folder, name, digest)
    return digest


def _name(path: Path) -> str:
    """The name of the file that keeps the digest."""
    identity = " ".join(map(str, stamp_of(path.resolve())))
    return hashlib.blake2b(identity.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _keep(folder: Path, name: str, digest: str) -> None:
    write_whole(folder / name, digest.encode())
    kept = [path for path in folder.iterdir() if not path.name.startswith(".")]
    for path in sorted(kept, key=lambda path: path.stat().st_mtime)[:-_MOST_KEPT]:
        path.unlink(missing_ok=True)
