"""Keeps the folders that GGUF files are translated to, in Penstock's cache.

A folder is named by a digest of the files' paths, sizes and times, so a file that has changed is translated anew. It
appears whole or not at all. Those that were used least recently are removed.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.cache_folder import cache_folder
from ....protocol.files.gguf.header import file_name
from ....protocol.files.model_file import read_model_settings
from ....protocol.files.own_folder import HeldFolder, is_own, make_own, remove_own
from ....protocol.files.user_folders import reason
from ....protocol.files.utf8 import names_in_utf8
from .find import encoder_beside
from .translation import LINK_FILE, translate

_MADE = "translated GGUF file"  # the mark of a folder that is complete
_FORMAT = b"2"  # of the translation; a new number has everything translated again
_KEPT = 32


def translated_folder(files: Sequence[Path], mmproj: Path | None = None) -> Path:
    """The folder that stands for a model in these files, its parts in order; made now unless it was before.

    `mmproj` is the file with what it sees with, if that doesn't lie beside them under such a name.
    """
    files = [file.absolute() for file in files]  # links too: what they lead to may have no name of its own
    mmproj = encoder_beside(files) if mmproj is None else mmproj.absolute()
    cache = cache_folder() / "gguf"
    try:
        target = cache / _key([*files, *([] if mmproj is None else [mmproj])])
        if is_own(target, _MADE) and (target / LINK_FILE).is_file():
            with suppress(OSError):
                os.utime(target)  # used last, removed last
            return target
        cache.mkdir(mode=0o700, exist_ok=True)
        remove_own(target, _MADE)  # somebody has taken its files away
        _translate_into(target, files, mmproj)
    except OSError as error:
        raise ConfigError(
            f"What {file_name(files[0])} is translated to can't be kept in {cache}: {reason(error)}. Set "
            "PENSTOCK_CACHE to a folder with room."
        ) from error
    with suppress(OSError):  # another process may remove the same
        _remove_oldest(cache)
    return target


def is_translated(folder: Path) -> bool:
    return (folder / LINK_FILE).is_file()


def why_no_tokenizer(folder: Path) -> str | None:
    """Why a translated folder has no tokenizer; None where it has one, or isn't one."""
    found = read_model_settings(folder / LINK_FILE).get("no_tokenizer")
    return found if isinstance(found, str) else None


def _translate_into(target: Path, files: Sequence[Path], mmproj: Path | None) -> None:
    making = HeldFolder.new(target.parent, ".making-", "unfinished translation")
    try:
        made = making.path / "model"
        make_own(made, _MADE)
        translate(files, made, mmproj)
        try:
            made.rename(target)
        except OSError:
            if not is_own(target, _MADE):  # else another process was faster
                raise
    finally:
        making.remove()


def _key(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(_FORMAT, digest_size=16)
    with names_in_utf8():
        for file in files:
            status = file.stat()
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            digest.update(f"{file}\0{identity}\0".encode())
    return digest.hexdigest()


def _remove_oldest(cache: Path) -> None:
    made = [path for path in cache.iterdir() if is_own(path, _MADE)]
    for path in sorted(made, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        remove_own(path, _MADE)
