"""Converts tokenizers that the `tokenizers` library can't read (`tokenizer.model`, `vocab.json` with `merges.txt`).

SentencePiece models and tiktoken files are read here (`vocabulary/`). The others are converted once by `transformers`,
in a helper process (it may import torch, which the front end doesn't). The result is in Penstock's cache under a hash
of its sources.
"""

import fnmatch
import hashlib
import importlib.util
import sys
from functools import partial
from pathlib import Path

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.made_folders import MadeFolders
from ...protocol.files.model_file import read_model_file
from ...protocol.files.user_folders import reason
from ...protocol.processes.child import begin
from ...protocol.processes.exit_status import describe_status
from ...protocol.processes.process import run_to_end, start_child

# Data files of convertible tokenizers.
VOCABULARY_FILES = [
    *("tokenizer.model*", "spiece.model", "sentencepiece*.model", "*.spm", "*.tiktoken", "tiktoken.model"),
    *("vocab.txt", "merges.txt", "vocab.bpe"),
]
_SMALL_FILES = ["*.json", "*.jinja", *VOCABULARY_FILES]
_NOT_READ = ["*.index.json"]
_CONVERTED = MadeFolders("tokenizers", "converted tokenizer", "unfinished tokenizer", "tokenizer.json")
_FORMAT = b"3"  # of the cache; a new number converts everything again
# What transformers needs for a conversion: module → distribution.
_NEEDED = {"transformers": "transformers"}
_NEEDED_FOR_OTHER_IDS = {**_NEEDED, "sentencepiece": "sentencepiece", "google.protobuf": "protobuf"}
_LONGEST_SECONDS = 600


def has_tokenizer(folder: Path) -> bool:
    """Whether there is a tokenizer, or files to make one from."""
    return (folder / "tokenizer.json").is_file() or bool(_sources(folder))


def converted(folder: Path) -> Path:
    """A folder with the `tokenizer.json` made from the tokenizer in `folder`, made now unless it exists."""
    sources = _sources(folder)
    if not sources:
        raise ModelNotFoundError(
            f"{folder} holds no tokenizer: neither tokenizer.json nor any of {', '.join(VOCABULARY_FILES)}. "
            "Give the folder that does with tokenizer=…"
        )
    key = _key(sources)
    try:
        return _CONVERTED.folder(key, partial(_convert_into, folder))
    except OSError as error:
        raise ConfigError(
            f"The converted tokenizer of {folder} cannot be kept in {_CONVERTED.parent}: {reason(error)}. Set "
            "PENSTOCK_CACHE to a folder with room, or give one that holds a tokenizer.json with tokenizer=…"
        ) from error


def converted_before(folder: Path) -> Path | None:
    """The converted tokenizer, if it was made and still exists."""
    sources = _sources(folder)
    return _CONVERTED.made_before(_key(sources)) if sources else None


def remove_converted(made: Path) -> None:
    _CONVERTED.remove(made)


def _convert_into(folder: Path, made: Path) -> None:
    from .vocabulary.folder import readable, write_tokenizer  # most models have a tokenizer.json

    if (vocabulary := readable(folder)) is not None:
        write_tokenizer(vocabulary, made)
    else:
        _convert(folder, made)


def _sources(folder: Path) -> list[Path]:
    """The files that the conversion may read; empty if there is no vocabulary among them."""
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
    """Convert with transformers: run this module as the helper process."""
    from .vocabulary.folder import has_other_ids

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
    except ModuleNotFoundError:  # of the surrounding package
        return False


# --- the helper process ----------------------------------------------------------------------------------------------


def main(source: str, target: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    if not tokenizer.is_fast:
        sys.exit(f"{type(tokenizer).__name__} has no form that the tokenizers library reads")
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main(*begin())
