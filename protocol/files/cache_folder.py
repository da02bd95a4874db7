"""The cache folder, for files that can be made again: converted tokenizers, packed weights, timings of kernels.

A start never fails because of the cache: a folder that cannot be used is skipped.
"""

import os
from pathlib import Path

from ..errors import ConfigError
from .user_folders import FolderKind, UserFolder, expanded, is_home_usable, reason, temporary, usable, usual_place

_CACHE = FolderKind("PENSTOCK_CACHE", "", ".cache")


def cache_folder() -> Path:
    """The folder; raises ConfigError if no folder can be written."""
    return cache_place().folder


def cache_place() -> UserFolder:
    try:
        if not (named := os.environ.get(_CACHE.variable)):
            return usual_place(_CACHE)
        try:
            return UserFolder(usable(expanded(named)))
        except OSError as error:
            return UserFolder(temporary(), f"{_CACHE.variable}={named} cannot be used ({reason(error)})")
    except OSError as error:
        raise ConfigError(f"Nothing can be kept anywhere: {reason(error)}. Set PENSTOCK_CACHE.") from error


def caches_of_libraries() -> dict[str, str]:
    """Environment variables for libraries that would otherwise write to another user's home."""
    if is_home_usable():
        return {}
    try:
        folder = cache_folder()
    except ConfigError:  # the code that needs the cache reports it
        return {}
    folders = {"HF_HOME": "huggingface", "TRITON_CACHE_DIR": "compiled"}
    return {name: str(folder / part) for name, part in folders.items() if not os.environ.get(name)}
