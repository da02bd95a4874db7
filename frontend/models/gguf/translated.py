"""Keeps the translated folders of GGUF files in Penstock's cache.

A folder is named by a digest of the files' paths and identities, so a changed file is translated again.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.formats import TRANSLATED_GGUF
from ....protocol.files.gguf.link import LINK_FILE
from ....protocol.files.gguf.refusals import file_name, unreadable
from ....protocol.files.made_folders import MadeFolders
from ....protocol.files.model_file import file_identity, read_model_settings
from ....protocol.files.user_folders import reason
from ....protocol.files.utf8 import names_in_utf8
from .find import GgufFiles
from .translation import translate

_TRANSLATED = MadeFolders("gguf", "translated GGUF file", "unfinished translation", LINK_FILE)


def translated_folder(files: GgufFiles) -> Path:
    """The folder for the model in these files, made now unless it exists."""
    # Links are kept: their targets may not have a telling name.
    files = GgufFiles(
        tuple(map(Path.absolute, files.parts)),
        tuple(map(Path.absolute, files.encoders)),
        files.parameters and files.parameters.absolute(),
    )
    key = _key((*files.parts, *files.encoders, *([files.parameters] if files.parameters else [])))
    try:
        return _TRANSLATED.folder(key, lambda made: translate(files, made))
    except OSError as error:
        raise ConfigError(
            f"The translation of {file_name(files.parts[0])} can't be kept in {_TRANSLATED.parent}: {reason(error)}. "
            "Set PENSTOCK_CACHE to a folder with room."
        ) from error


def is_translated(folder: Path) -> bool:
    return (folder / LINK_FILE).is_file()


def why_no_tokenizer(folder: Path) -> str | None:
    """Why a translated folder has no tokenizer; None if it has one, or isn't one."""
    found = read_model_settings(folder / LINK_FILE).get("no_tokenizer")
    return found if isinstance(found, str) else None


def _key(files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(str(TRANSLATED_GGUF.version).encode(), digest_size=16)
    with names_in_utf8():
        for file in files:
            try:
                identity = file_identity(file)
            except OSError as error:
                raise unreadable(file, error) from None
            digest.update(f"{file}\0{identity}\0".encode())
    return digest.hexdigest()
