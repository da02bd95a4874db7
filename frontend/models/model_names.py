"""Parses a model's name: a bundled name, a folder, or a hub id, with a revision or a quantization.

For an unknown name it suggests a bundled model, one in the hub's cache, or a folder next to the named one.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...protocol.fields.suggestion import nearest
from ...protocol.files.gguf.parts import stem_of

# Models that come with the package: name → folder.
_FRONTEND = Path(__file__).parents[1]
BUNDLED = {"pocket": _FRONTEND / "pocket", "pocket-sight": _FRONTEND / "pocket_sight"}

# Prefixes of model names in other programs' stores.
STORES = ("ollama:", "lmstudio:")

_HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./+-]+))?")


class HubName(NamedTuple):
    """A model on the hub, at a branch, tag or commit."""

    id: str
    revision: str | None = None

    @property
    def asked_revision(self) -> str:
        return self.revision or "main"

    def __str__(self) -> str:
        return self.id if self.revision is None else f"{self.id} at revision {self.revision}"


def hub_name(name: str, revision: str | None = None) -> HubName | None:
    """Parse `OWNER/NAME` or `OWNER/NAME@REVISION`; None for anything else. `revision` overrides the name's."""
    found = _HUB_NAME.fullmatch(name)
    return HubName(found[1], revision or found[2]) if found else None


class GgufName(NamedTuple):
    """GGUF files of one quantization, in a repository on the hub."""

    model: HubName
    quantization: str

    def __str__(self) -> str:
        return f"{self.model.id}:{self.quantization}" + (f" at {self.model.revision}" if self.model.revision else "")


_QUANTIZATION = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


def gguf_name(name: str, revision: str | None = None) -> GgufName | None:
    """Parse `OWNER/NAME:Q4_K_M` or `OWNER/NAME@REVISION:Q4_K_M`; None for anything else."""
    model, colon, quantization = name.rpartition(":")
    found = hub_name(model, revision)
    return GgufName(found, quantization) if found and colon and _QUANTIZATION.fullmatch(quantization) else None


def is_stored_name(name: str) -> bool:
    """Whether it names a model in another program's store."""
    return name.startswith(STORES)


def name_of(model: str) -> str:
    """The default name of a model: a path's last part, since the rest is specific to this machine. A GGUF file's
    name loses its format and part number."""
    is_path = model not in BUNDLED and (not _is_name(model) or os.path.exists(model))
    if not is_path:
        return model
    path = Path(os.path.expanduser(model)).absolute()
    name = path.name if path.is_dir() else stem_of(path.name)
    return name or "model"


def _is_name(model: str) -> bool:
    return is_stored_name(model) or hub_name(model) is not None or gguf_name(model) is not None


_MOST_ENTRIES = 10_000
_IN_CACHE = "models--"


def nearest_model(name: str, bundled: Iterable[str], cache: str, *, has_folders: bool = True) -> str:
    """A suggestion, by the last parts of names: all models of an owner, and all folders of a parent, begin alike.

    `cache` is huggingface_hub's folder of models; with `has_folders`, other folders may be meant, too.
    """
    cached = (entry.removeprefix(_IN_CACHE).replace("--", "/") for entry in _folders(cache, _IN_CACHE))
    parent, slash, last = name.rstrip("/").rpartition("/")
    folders = _folders(os.path.expanduser(parent + slash) or os.curdir) if has_folders else ()
    beside = (f"{parent}{slash}{entry}" for entry in folders)
    known = {model.rpartition("/")[2]: model for model in (*beside, *cached, *bundled)}
    return "" if (near := nearest(last, known)) is None else f" Did you mean {known[near]}?"


def _folders(path: str, prefix: str = "") -> Iterator[str]:
    with suppress(OSError, ValueError), os.scandir(path) as entries:
        for entry, _ in zip(entries, range(_MOST_ENTRIES)):
            if entry.name.startswith(prefix) and entry.is_dir():
                yield entry.name
