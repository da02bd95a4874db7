"""Suggests the model that was probably meant: a bundled one, one in the hub's cache, or a folder beside the one named.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ...protocol.fields.suggestion import nearest

_MOST_ENTRIES = 10_000
_IN_CACHE = "models--"


def nearest_model(name: str, bundled: Iterable[str], cache: str, *, has_folders: bool = True) -> str:
    """A suggestion, by the last parts of names: all models of an owner, and all folders of a parent, begin alike.

    `cache` is the folder where huggingface_hub keeps models; `has_folders` where other folders may be meant, too.
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
