"""Models in LM Studio's store (`frontend/models/stores/ollama.py` does the same for Ollama).

A model there is `lmstudio:ORG/REPO`, or `lmstudio:ORG/REPO/FILE` if there are several.
"""

from collections.abc import Iterator
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.parts import SUFFIX
from ..gguf.find import GgufFiles, files_of, is_model
from ..model_names import STORES
from .store import entries, is_part, under_homes

_, PREFIX = STORES
FORM = f"a name in LM Studio's folders is {PREFIX}ORG/REPO or {PREFIX}ORG/REPO/FILE"


def folders() -> list[Path]:
    return under_homes(".lmstudio/models", ".cache/lm-studio/models")


def places(name: str) -> list[Path]:
    """Paths where a model of this name may be; empty for an impossible name."""
    parts = name.removeprefix(PREFIX).split("/")
    if len(parts) not in (2, 3) or not all(map(is_part, parts)):
        return []
    return [folder.joinpath(*parts) for folder in folders()]


def names() -> Iterator[tuple[str, Path]]:
    """The names of all models, with their files; of a model in parts, the first."""
    for folder in folders():
        for owner in entries(folder):
            for repository in entries(owner):
                files = _models_in(repository)
                for file in files:
                    rest = f"/{file.name}" if len(files) > 1 else ""
                    yield f"{PREFIX}{owner.name}/{repository.name}{rest}", file


def read(name: str, path: Path) -> GgufFiles:
    """The model's files; raises `ConfigError` if there are several models or a part is missing, `FileNotFoundError`
    if there is nothing."""
    if path.is_file() and path.suffix == SUFFIX:
        return files_of(path)
    models = _models_in(path)
    if not models:
        raise FileNotFoundError(path)
    if len(models) > 1:
        named = ", ".join(f"{name}/{model.name}" for model in models)
        raise ConfigError(f"{name} has {len(models)} models. Name one of them: {named}.")
    return files_of(models[0])


def _models_in(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if is_model(path)]
