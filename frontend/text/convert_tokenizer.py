"""Converts tokenizers that the `tokenizers` library can't read (`tokenizer.model`, `vocab.json` with `merges.txt`).

SentencePiece models and tiktoken files are read here (`vocabulary/`). For the others `transformers` does it, once, in a
helper process (it may import torch, and the front end doesn't). The result lies in Penstock's cache under a hash of
what it was made from; it appears there whole or not at all.
"""

import fnmatch
import hashlib
import importlib.util
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.cache_folder import cache_folder
from ...protocol.files.model_file import read_model_file
from ...protocol.files.own_folder import HeldFolder, is_own, make_own, remove_own
from ...protocol.files.user_folders import reason
from ...protocol.processes.child import begin
from ...protocol.processes.exit_status import describe_status
from ...protocol.processes.process import run_to_end, start_child
from .vocabulary import has_other_ids, readable, write_tokenizer

# Data files of the tokenizers that are worth converting.
VOCABULARY_FILES = [
    *("tokenizer.model*", "spiece.model", "sentencepiece*.model", "*.spm", "*.tiktoken", "tiktoken.model"),
    *("vocab.txt", "merges.txt", "vocab.bpe"),
]
_SMALL_FILES = ["*.json", "*.jinja", *VOCABULARY_FILES]
_NOT_READ = ["*.index.json"]
_MADE = "converted tokenizer"  # the mark of a folder that is complete
_FORMAT = b"3"  # of the cache; a new number converts everything again
_KEPT = 32
# What transformers converts with: module → distribution.
_NEEDED = {"transformers": "transformers"}
_NEEDED_FOR_OTHER_IDS = {**_NEEDED, "sentencepiece": "sentencepiece", "google.protobuf": "protobuf"}
_LONGEST_SECONDS = 600


def has_tokenizer(folder: Path) -> bool:
    """Whether there is one, or what one could be made of."""
    return (folder / "tokenizer.json").is_file() or bool(_sources(folder))


def converted(folder: Path) -> Path:
    """A folder with the `tokenizer.json` made from the tokenizer in `folder`; made now unless it was before."""
    sources = _sources(folder)
    if not sources:
        raise ModelNotFoundError(
            f"{folder} holds no tokenizer: neither tokenizer.json nor any of {', '.join(VOCABULARY_FILES)}. "
            "Give the folder that does with tokenizer=…"
        )
    cache = cache_folder() / "tokenizers"
    target = cache / _key(sources)
    if is_own(target, _MADE) and (target / "tokenizer.json").is_file():
        with suppress(OSError):
            os.utime(target)  # used last, removed last
        return target
    try:
        cache.mkdir(mode=0o700, exist_ok=True)
        remove_own(target, _MADE)  # somebody has taken its vocabulary away
        _convert_into(target, folder)
    except OSError as error:
        raise ConfigError(
            f"The converted tokenizer of {folder} cannot be kept in {cache}: {reason(error)}. Set PENSTOCK_CACHE to a "
            "folder with room, or give one that holds a tokenizer.json with tokenizer=…"
        ) from error
    with suppress(OSError):  # another process may remove the same
        _remove_oldest(cache)
    return target


def converted_before(folder: Path) -> Path | None:
    """What was made of it, if it was and is still there."""
    if not (sources := _sources(folder)):
        return None
    found = cache_folder() / "tokenizers" / _key(sources)
    return found if is_own(found, _MADE) else None


def remove_converted(made: Path) -> None:
    remove_own(made, _MADE)


def _convert_into(target: Path, folder: Path) -> None:
    making = HeldFolder.new(target.parent, ".making-", "unfinished tokenizer")
    try:
        made = making.path / "tokenizer"
        make_own(made, _MADE)
        if (vocabulary := readable(folder)) is not None:
            write_tokenizer(vocabulary, made)
        else:
            _convert(folder, made)
        try:
            made.rename(target)
        except OSError:
            if not is_own(target, _MADE):  # else another process was faster
                raise
    finally:
        making.remove()


def _sources(folder: Path) -> list[Path]:
    """What the conversion may read; empty if there is no vocabulary among it."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found = [path for path in files if _matches(path, _SMALL_FILES) and not _matches(path, _NOT_READ)]
    has_vocabulary = any(_matches(path, [*VOCABULARY_FILES, "vocab.json", "tekken.json"]) for path in found)
    return found if has_vocabulary else []


def _matches(path: Path, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns)


def _key(sources: list[Path]) -> str:
    digest = hashlib.blake2b(_FORMAT, digest_size=16)
    for path in sources:
        content = read_model_file(path)
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _convert(source: Path, target: Path) -> None:
    """By transformers: run this module as the helper process."""
    needed = _NEEDED_FOR_OTHER_IDS if has_other_ids(source) else _NEEDED
    if not all(map(_is_installed, needed)):
        raise ConfigError(
            f"{source} has no tokenizer.json, and converting its tokenizer takes {' and '.join(needed.values())} once. "
            f"Install with: pip install 'penstock[transformers]' {' '.join(list(needed.values())[1:])}".rstrip()
        )
    helper = partial(start_child, "tokenizer", __name__, [str(source), str(target)], env={"HF_HUB_OFFLINE": "1"})
    try:
        done = run_to_end(helper, _LONGEST_SECONDS)
        said = done.errors.decode(errors="replace").strip().splitlines()
        why = (said or [f"it {describe_status(done.status)}"])[-1]
    except TimeoutError:
        why = f"it had not finished after {_LONGEST_SECONDS} seconds"
    if not (target / "tokenizer.json").is_file():
        raise ConfigError(
            f"transformers could not convert the tokenizer in {source}: {why}. "
            "Install what it asks for, or give a folder with a tokenizer.json with tokenizer=…"
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _remove_oldest(cache: Path) -> None:
    made = [path for path in cache.iterdir() if is_own(path, _MADE)]
    for path in sorted(made, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        remove_own(path, _MADE)


# --- the helper process ----------------------------------------------------------------------------------------------


def main(source: str, target: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    if not tokenizer.is_fast:
        sys.exit(f"{type(tokenizer).__name__} has no form that the tokenizers library reads")
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main(*begin())
