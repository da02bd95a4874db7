"""Keeps the folders that GGUF files are translated to, in Penstock's cache.

A folder is named by a digest of the files' paths, sizes and times, so a file that has changed is translated anew.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.header import file_name
from ....protocol.files.gguf.link import LINK_FILE
from ....protocol.files.made_folders import MadeFolders
from ....protocol.files.model_file import read_model_settings
from ....protocol.files.user_folders import reason
from ....protocol.files.utf8 import names_in_utf8
from .find import encoder_beside
from .translation import translate

_TRANSLATED = MadeFolders("gguf", "translated GGUF file", "unfinished translation", LINK_FILE)
_FORMAT = b"2"  # of the translation; a new number has everything translated again


def translated_folder(files: Sequence[Path], mmproj: Path | None = None) -> Path:
    """The folder that stands for a model in these files, its parts in order; made now unless it was before.

    `mmproj` is the file with what it sees with, if that doesn't lie beside them under such a name.
    """
    files = [file.absolute() for file in files]  # links too: what they lead to may have no name of its own
    mmproj = encoder_beside(files) if mmproj is None else mmproj.absolute()
    try:
        key = _key([*files, *([] if mmproj is None else [mmproj])])
        return _TRANSLATED.folder(key, lambda made: translate(files, made, mmproj))
    except OSError as error:
        raise ConfigError(
            f"What {file_name(files[0])} is translated to can't be kept in {_TRANSLATED.place}: {reason(error)}. Set "
            "PENSTOCK_CACHE to a folder with room."
        ) from error


def is_translated(folder: Path) -> bool:
    return (folder / LINK_FILE).is_file()


def why_no_tokenizer(folder: Path) -> str | None:
    """Why a translated folder has no tokenizer; None where it has one, or isn't one."""
    found = read_model_settings(folder / LINK_FILE).get("no_tokenizer")
    return found if isinstance(found, str) else None


def _key(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(_FORMAT, digest_size=16)
    with names_in_utf8():
        for file in files:
            status = file.stat()
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            digest.update(f"{file}\0{identity}\0".encode())
    return digest.hexdigest()
