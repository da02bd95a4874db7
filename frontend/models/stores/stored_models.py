"""Finds models in the stores of other programs by name, and lists them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import ConfigError, ModelNotFoundError
from ....protocol.fields.suggestion import nearest
from ....protocol.files.gguf.parts import parts_of
from ....protocol.files.user_folders import homes
from ..gguf.find import GgufFiles, model_files_in
from . import lm_studio, ollama
from .store import Store

_STORES: tuple[Store, ...] = (ollama, lm_studio)


class Listed(NamedTuple):
    """A model, or why it can't be read."""

    name: str
    files: GgufFiles | None
    refusal: str = ""


def stored_model(name: str) -> GgufFiles:
    """The files of a model whose name begins with a store's prefix. Raises `ModelNotFoundError`, or `ConfigError` if
    it can't be read."""
    [store] = (each for each in _STORES if name.startswith(each.PREFIX))
    tried = store.places(name)
    for path in tried:
        try:
            return store.read(name, path)
        except (FileNotFoundError, NotADirectoryError):
            continue
    # All names of a store have the same prefix, so they are compared without it.
    known = {each.removeprefix(store.PREFIX): each for each, _ in store.names()}
    near = nearest(name.removeprefix(store.PREFIX), known)
    hint = "" if near is None else f" Did you mean {known[near]}?"
    places = "".join(f"\n  - {path} (it does not exist)" for path in tried) or f"\n  - nothing: {store.FORM}"
    raise ModelNotFoundError(f"No model {name!r} was found.{hint} Tried:{places}")


def stored_under(name: str) -> str | None:
    """The full name of a model that its own program calls this: `ollama:qwen3:0.6b` for qwen3:0.6b."""
    for store in _STORES:
        for whole, _ in store.names():
            if whole.removeprefix(store.PREFIX) in (name, f"{name}:latest"):
                return whole
    return None


def stored_models() -> Iterator[Listed]:
    """All models in the stores, under names that `LLM` accepts; for llama.cpp's downloads, the names of the files."""
    for store in _STORES:
        for name, path in store.names():
            try:
                yield Listed(name, store.read(name, path))
            except (ConfigError, OSError) as error:
                yield Listed(name, None, str(error))
    yield from map(listed_file, _downloads_of_llama_cpp())


def listed_file(file: Path) -> Listed:
    """A GGUF file outside of any store, by its path."""
    try:
        return Listed(str(file), GgufFiles(parts_of(file)))
    except ConfigError as error:
        return Listed(str(file), None, str(error))


def _downloads_of_llama_cpp() -> Iterator[Path]:
    named = os.environ.get("LLAMA_CACHE")
    for folder in [Path(named)] if named else [home / ".cache" / "llama.cpp" for home in homes()]:
        yield from model_files_in(folder)
