"""Tokenizers that the `tokenizers` library can't read (`tokenizer.model`, `vocab.json` with `merges.txt`), converted.

`transformers` does it, once, in a helper process (it may import torch, and the front end doesn't). The result lies in
Penstock's cache under a hash of what it was made from; it appears there whole or not at all.
Knows nothing of what is done with it.
"""

import fnmatch
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from ..protocol.cache_folder import cache_folder
from ..protocol.child import begin
from ..protocol.errors import ConfigError, ModelNotFoundError
from ..protocol.exit_status import described
from ..protocol.process import run_to_end, start_child

# Data files of the tokenizers that are worth converting.
VOCABULARY_FILES = [
    *("tokenizer.model*", "spiece.model", "sentencepiece*.model", "*.spm", "*.tiktoken", "tiktoken.model"),
    *("vocab.txt", "merges.txt", "vocab.bpe"),
]
_SMALL_FILES = ["*.json", "*.jinja", *VOCABULARY_FILES]
_NOT_READ = ["*.index.json"]
_FORMAT = b"1"  # of the cache; a new number converts everything again
_KEPT = 32
_LONGEST_SECONDS = 600


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
    if (target / "tokenizer.json").is_file():
        os.utime(target)  # used last, removed last
        return target
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(
            f"{folder} has no tokenizer.json, and converting its tokenizer takes transformers once. "
            "Install it with: pip install 'penstock[transformers]'"
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as making:
        made = Path(making) / "tokenizer"
        _convert(folder, made)
        try:
            made.rename(target)
        except OSError:
            if not (target / "tokenizer.json").is_file():  # else another process was faster
                raise
    _remove_oldest(cache)
    return target


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
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _convert(source: Path, target: Path) -> None:
    """Run this module as the helper process."""
    helper = partial(start_child, "tokenizer", __name__, [str(source), str(target)], env={"HF_HUB_OFFLINE": "1"})
    try:
        done = run_to_end(helper, _LONGEST_SECONDS)
        said = done.errors.decode(errors="replace").strip().splitlines()
        reason = (said or [f"it {described(done.status)}"])[-1]
    except TimeoutError:
        reason = f"it had not finished after {_LONGEST_SECONDS} seconds"
    if not (target / "tokenizer.json").is_file():
        raise ConfigError(
            f"transformers could not convert the tokenizer in {source}: {reason}. "
            "Install what it asks for, or give a folder with a tokenizer.json with tokenizer=…"
        )


def _remove_oldest(cache: Path) -> None:
    made = sorted((path for path in cache.iterdir() if path.name[0] != "."), key=lambda path: path.stat().st_mtime)
    for path in made[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


# --- the helper process ----------------------------------------------------------------------------------------------


def main(source: str, target: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    if not tokenizer.is_fast:
        sys.exit(f"{type(tokenizer).__name__} has no form that the tokenizers library reads")
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main(*begin())
