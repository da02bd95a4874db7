"""Finds models in the stores of other programs by their names, and lists what lies there."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import ConfigError, ModelNotFoundError
from ....protocol.fields.suggestion import nearest
from ....protocol.files.gguf.parts import is_later_part, parts_of
from ....protocol.files.user_folders import homes
from . import lm_studio, ollama
from .stored_model import SUFFIX, StoredModel, entries, stands_beside


class Listed(NamedTuple):
    """A model, or why it can't be read."""

    name: str
    model: StoredModel | None
    refusal: str = ""


def stored_model(name: str) -> StoredModel:
    """By a name that begins with a store's. Raises `ModelNotFoundError`, or `ConfigError` where it can't be read."""
    if name.startswith(ollama.PREFIX):
        tried, read = ollama.manifests(name), ollama.read
    else:
        tried, read = lm_studio.places(name), lm_studio.read
    for place in tried:
        try:
            return read(name, place)
        except (FileNotFoundError, NotADirectoryError):
            continue
    places = "".join(f"\n  - {place} (it does not exist)" for place in tried) or f"\n  - nothing: {_form_of(name)}"
    raise ModelNotFoundError(f"No model {name!r} was found.{_hint(name)} Tried:{places}")


def _form_of(name: str) -> str:
    if name.startswith(ollama.PREFIX):
        return f"a name in Ollama's store is {ollama.PREFIX}NAME or {ollama.PREFIX}NAME:TAG, as `ollama list` has it"
    return f"a name in LM Studio's folders is {lm_studio.PREFIX}ORG/REPO or {lm_studio.PREFIX}ORG/REPO/FILE"


def _hint(name: str) -> str:
    """All names of a store begin alike, so they are compared without that."""
    prefix = ollama.PREFIX if name.startswith(ollama.PREFIX) else lm_studio.PREFIX
    of_store = ollama.names() if prefix == ollama.PREFIX else lm_studio.names()
    known = {each.removeprefix(prefix): each for each, _ in of_store}
    return "" if (near := nearest(name.removeprefix(prefix), known)) is None else f" Did you mean {known[near]}?"


def stored_under(name: str) -> str | None:
    """The whole name of what its own program calls so: `ollama:qwen3:0.6b` of qwen3:0.6b."""
    for prefix, of_store in ((ollama.PREFIX, ollama.names), (lm_studio.PREFIX, lm_studio.names)):
        for whole, _ in of_store():
            if whole.removeprefix(prefix) in (name, f"{name}:latest"):
                return whole
    return None


def stored_models() -> Iterator[Listed]:
    """All that lies in the stores, under the names that `LLM` takes; of llama.cpp's downloads the files' own."""
    for names, read in ((ollama.names, ollama.read), (lm_studio.names, lm_studio.read)):
        for name, place in names():
            try:
                yield Listed(name, read(name, place))
            except (ConfigError, OSError) as error:
                yield Listed(name, None, str(error))
    for file in _downloads_of_llama_cpp():
        try:
            yield Listed(str(file), StoredModel(str(file), parts_of(file)))
        except ConfigError as error:
            yield Listed(str(file), None, str(error))


def _downloads_of_llama_cpp() -> Iterator[Path]:
    named = os.environ.get("LLAMA_CACHE")
    for folder in [Path(named)] if named else [home / ".cache" / "llama.cpp" for home in homes()]:
        for path in entries(folder):
            if path.suffix == SUFFIX and path.is_file() and not stands_beside(path) and not is_later_part(path):
                yield path
