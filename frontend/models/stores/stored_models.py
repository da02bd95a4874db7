"""Finds models in the stores of other programs by their names, and lists what lies there."""

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
    """By a name that begins with a store's. Raises `ModelNotFoundError`, or `ConfigError` where it can't be read."""
    [store] = (each for each in _STORES if name.startswith(each.PREFIX))
    tried = store.places(name)
    for place in tried:
        try:
            return store.read(name, place)
        except (FileNotFoundError, NotADirectoryError):
            continue
    # All names of a store begin alike, so they are compared without that.
    known = {each.removeprefix(store.PREFIX): each for each, _ in store.names()}
    near = nearest(name.removeprefix(store.PREFIX), known)
    hint = "" if near is None else f" Did you mean {known[near]}?"
    places = "".join(f"\n  - {place} (it does not exist)" for place in tried) or f"\n  - nothing: {store.FORM}"
    raise ModelNotFoundError(f"No model {name!r} was found.{hint} Tried:{places}")


def stored_under(name: str) -> str | None:
    """The whole name of what its own program calls so: `ollama:qwen3:0.6b` of qwen3:0.6b."""
    for store in _STORES:
        for whole, _ in store.names():
            if whole.removeprefix(store.PREFIX) in (name, f"{name}:latest"):
                return whole
    return None


def stored_models() -> Iterator[Listed]:
    """All that lies in the stores, under the names that `LLM` takes; of llama.cpp's downloads the files' own."""
    for store in _STORES:
        for name, place in store.names():
            try:
                yield Listed(name, store.read(name, place))
            except (ConfigError, OSError) as error:
                yield Listed(name, None, str(error))
    yield from map(listed_file, _downloads_of_llama_cpp())


def listed_file(file: Path) -> Listed:
    """A GGUF file that lies in no store, by its path."""
    try:
        return Listed(str(file), GgufFiles(parts_of(file)))
    except ConfigError as error:
        return Listed(str(file), None, str(error))


def _downloads_of_llama_cpp() -> Iterator[Path]:
    named = os.environ.get("LLAMA_CACHE")
    for folder in [Path(named)] if named else [home / ".cache" / "llama.cpp" for home in homes()]:
        yield from model_files_in(folder)
