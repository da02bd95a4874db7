"""Where the files of a model lie: a bundled name, a folder, or a hub id, looked for in that order.

From the hub come safetensors, JSON and chat templates only, into huggingface_hub's own cache; code never. A model
without `tokenizer.json` gets the vocabulary files as well, and a converted tokenizer in Penstock's cache.
Knows nothing of what stands in the files.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..protocol.cache_folder import caches_of_libraries
from ..protocol.errors import ConfigError, ModelNotFoundError
from ..protocol.git_lfs import is_pointer, pointer_refusal
from ..protocol.model_file import require_regular
from ..protocol.paddle import paddle_refusal
from .convert_tokenizer import VOCABULARY_FILES, converted
from .known_models import nearest_model

# Models that come with the package: name → folder.
BUNDLED = {"pocket": Path(__file__).with_name("pocket")}

_DESCRIPTIONS = ["*.json", "*.jinja"]
_WEIGHTS = ["*.safetensors"]
_CUT_WEIGHTS = ["rank-*-of-*/*.safetensors"]  # by `penstock convert --per-rank`, each with a list of its pieces
# The same weights again, in other layouts.
_DUPLICATES = ["consolidated*", "original/*", "onnx/*", "openvino/*", "*/*.safetensors"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The two folders that a tree reads from."""

    name: str  # as it was asked for
    folder: Path  # config.json, weights, generation_config.json
    tokenizer_folder: Path  # tokenizer.json


def name_of(model: str) -> str:
    """What a model is called where nobody gave it a name: of a path the last part, since the rest says where things lie
    on this machine."""
    is_path = model not in BUNDLED and (not _HUB_ID.fullmatch(model) or Path(model).is_dir())
    return Path(os.path.expanduser(model)).absolute().name or "model" if is_path else model


def find_model(
    model: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    *,
    needs_weights: bool = True,
) -> ModelFiles:
    """Find a model, and its tokenizer if that lies elsewhere, downloading what is missing."""
    name = os.fspath(model)
    folder = find_folder(name, revision, _DESCRIPTIONS + (_WEIGHTS if needs_weights else []))
    try:
        require_regular(folder / "config.json")
    except FileNotFoundError:
        raise ModelNotFoundError(
            f"{folder} has no config.json, so it is not a model's folder. Give the folder that holds config.json and "
            "the *.safetensors files."
        ) from None
    for path in (*folder.glob("*.json"), *folder.glob("*.safetensors"), *folder.glob("tokenizer.model*")):
        if is_pointer(path):
            raise ConfigError(pointer_refusal(path))
    if needs_weights and _is_from_hub(name) and any(folder.glob("rank-*-of-*/pieces.json")):
        folder = _from_hub(name, revision, _CUT_WEIGHTS, [], duplicates=[])
    if tokenizer is not None:
        return ModelFiles(name, folder, find_tokenizer(tokenizer))
    return ModelFiles(name, folder, _with_tokenizer(folder, name, revision))


def find_tokenizer(tokenizer: str | os.PathLike[str], revision: str | None = None) -> Path:
    """The folder with the `tokenizer.json` of a bundled name, folder or hub id; converted if there is none."""
    name = os.fspath(tokenizer)
    path = Path(os.path.expanduser(name))
    if path.name == "tokenizer.json" and os.path.isfile(path):
        return path.parent
    return _with_tokenizer(find_folder(name, revision, _DESCRIPTIONS), name, revision)


def find_folder(name: str, revision: str | None, patterns: list[str]) -> Path:
    """The folder of a bundled name, a path, or a hub id; from the hub only files that match the patterns."""
    _refuse_paddle(name)
    bundled = BUNDLED.get(name)
    if bundled is not None and bundled.is_dir():
        return bundled
    path = Path(os.path.expanduser(name))
    if name and os.path.isdir(path):
        _refuse_paddle(path.name, path)
        return path.resolve()
    tried = [
        f"bundled models ({', '.join(BUNDLED)})" if bundled is None else f"the bundled model {name} (not installed)",
        f"the folder {_absolute(path)}" + (" (it is a file)" if os.path.isfile(path) else " (it does not exist)"),
    ]
    if not _HUB_ID.fullmatch(name) or os.path.exists(path):
        raise _not_found(name, [*tried, "the hub (this is not a hub id)"])
    return _from_hub(name, revision, patterns, tried)


def _with_tokenizer(folder: Path, name: str, revision: str | None) -> Path:
    if (folder / "tokenizer.json").exists():
        return folder
    if _is_from_hub(name):
        folder = _from_hub(name, revision, [*_DESCRIPTIONS, *VOCABULARY_FILES], [])
    return converted(folder)


def _is_from_hub(name: str) -> bool:
    return name not in BUNDLED and not os.path.isdir(os.path.expanduser(name))


def _from_hub(
    name: str, revision: str | None, patterns: list[str], tried: list[str], duplicates: list[str] = _DUPLICATES
) -> Path:
    prepare_hub()
    # Here, not above: a model in a folder needs none of it.
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    shown = name if revision is None else f"{name} at revision {revision}"
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, ignore_patterns=duplicates))
    except GatedRepoError:
        reason = f"the hub: {shown} needs its owner's consent; ask for it on its page and log in with `hf auth login`"
    except RepositoryNotFoundError:
        reason = f"the hub: there is no model {name}, or it is private (log in with `hf auth login`)"
    except RevisionNotFoundError:
        reason = f"the hub: {name} has no revision {revision}"
    except HFValidationError as error:
        reason = f"the hub ({error})"
    except (LocalEntryNotFoundError, OSError) as error:
        offline = "offline by HF_HUB_OFFLINE" if constants.HF_HUB_OFFLINE else f"not reachable: {_first_line(error)}"
        reason = f"the hub ({offline}), and {shown} is not complete in its cache {constants.HF_HUB_CACHE}"
    raise _not_found(name, [*tried, reason])


def prepare_hub() -> None:
    """Before huggingface_hub is imported, which looks once where its cache is: not in a home that isn't this user's."""
    os.environ.update(caches_of_libraries())


def _not_found(name: str, tried: list[str]) -> ModelNotFoundError:
    places = "".join(f"\n  - {place}" for place in tried)
    hint = nearest_model(name, BUNDLED, _hub_cache())
    return ModelNotFoundError(f"There is no model {name!r}.{hint} Tried:{places}")


def _hub_cache() -> str:
    prepare_hub()
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


def _absolute(path: Path) -> Path:
    """As it is where the working folder was removed."""
    try:
        return path.absolute()
    except OSError:
        return path


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _refuse_paddle(name: str, folder: Path | None = None) -> None:
    """Checkpoints in Paddle's own layout transpose their weights; the same model exists in the hub's layout."""
    has_paddle_files = folder is not None and any(folder.glob("*.pdparams"))
    if name.endswith("-Paddle") or has_paddle_files:
        raise ConfigError(paddle_refusal(name))
