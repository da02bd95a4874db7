"""Downloads a model's files from the hub, first those that show whether it can run.

After the descriptions, it checks whether this engine supports the model, whether there are a tokenizer and weights, and
whether the disk has room. Then it downloads the weights. A repository may hold the same weights several times over (as
`pytorch_model.bin`, as GGUF, in `original/` and `onnx/`): only files that the engine reads are downloaded, and never
code. If the hub can't be reached, or refuses, earlier downloads are used.
"""

import errno
import re
import shutil
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import ConfigError, ModelNotFoundError, PenstockError
from ....protocol.files.sizes import size
from ...console import logs
from ...machine import ask_survey
from ...text.convert_tokenizer import VOCABULARY_FILES
from ..model_names import HubName
from .cache import (
    blob_path,
    bytes_of_blob,
    cache_root,
    cached_snapshot,
    missing_weights,
    remember,
    snapshot_folder,
)
from .contents import Damaged, remove_damaged
from .download import Stalled, download
from .gguf_names import labels
from .progress import DownloadProgress, download_progress
from .repository import HubFile, Listing, hub_errors, is_unknown, listing_of, reason_of
from .transfer import NoProgress

# Files, other than vocabularies, from which a tokenizer can be made.
_TOKENIZERS = {"tokenizer.json", "vocab.json", "tekken.json"}


class FileKinds(NamedTuple):
    """The kinds of a model's files that are needed."""

    weights: bool = True
    tokenizer: bool = True


class NotOnHub(ModelNotFoundError):
    """The hub returned nothing, and nothing is cached; the message is a clause of a sentence."""


class UnknownToHub(NotOnHub):
    """The hub answered that there is no such name."""


def snapshot(model: HubName, wanted: FileKinds, *, is_quiet: bool = False, is_checked: bool = False) -> Path:
    """Its folder in the hub's cache, after downloading missing files and, with `is_checked`, broken ones.

    Raises `NotOnHub` if there is no such model, `ConfigError` if it wouldn't run, and another `PenstockError` if the
    download was interrupted.
    """
    try:
        listing = listing_of(model)
    except hub_errors() as error:
        return _cached(model, wanted, error)
    folder = snapshot_folder(model, listing.commit)
    parts = _parts(listing, wanted)
    if wanted.weights:
        _judge_listing(listing, parts, wanted)
    if is_checked:
        check(listing, [*parts.descriptions, *parts.weights], folder)
    if _missing(folder, [*parts.descriptions, *parts.weights]):
        _fetch(listing, parts, folder, is_quiet)
    remember(model, listing.commit)
    return folder


def require_listed(model: HubName) -> None:
    """Raises `NotOnHub` if the hub has no such model, or can't be reached, and nothing of it is cached."""
    try:
        listing_of(model)
    except hub_errors() as error:
        _cached(model, FileKinds(), error)


class _Parts(NamedTuple):
    descriptions: list[HubFile]
    weights: list[HubFile]


def _parts(listing: Listing, wanted: FileKinds) -> _Parts:
    has_tokenizer = any(file.name == "tokenizer.json" for file in listing.files)
    descriptions = [
        file
        for file in listing.files
        if is_description(file.name) or (wanted.tokenizer and not has_tokenizer and is_vocabulary(file.name))
    ]
    return _Parts(descriptions, [file for file in listing.files if wanted.weights and is_weights(file.name)])


def _fetch(listing: Listing, parts: _Parts, folder: Path, is_quiet: bool) -> None:
    try:
        descriptions = _missing(folder, parts.descriptions)
        _require_room(listing, descriptions)
        download(listing, descriptions, DownloadProgress(listing.model.id, 0, 0))
        if missing := _missing(folder, parts.weights):
            _judge_config(listing, parts, folder)
            _fetch_weights(listing, parts.weights, missing, is_quiet)
    except PenstockError:
        raise
    except hub_errors() as error:
        raise _broken_off(error, listing.model) from error


def fetch(listing: Listing, files: list[HubFile], folder: Path, is_quiet: bool) -> None:
    """Download files that need no check of a description before."""
    try:
        if missing := _missing(folder, files):
            _fetch_weights(listing, files, missing, is_quiet)
    except PenstockError:
        raise
    except hub_errors() as error:
        raise _broken_off(error, listing.model) from error


def check(listing: Listing, files: list[HubFile], folder: Path) -> None:
    """Remove files that differ from the hub's list, so that they count as missing."""
    try:
        for file in files:
            remove_damaged(blob_path(listing.model.id, file.digest), folder / file.name, file)
    except OSError as error:
        raise PenstockError(f"A broken file of {listing.model} can't be removed: {error}.") from error


def _missing(folder: Path, files: list[HubFile]) -> list[HubFile]:
    return [file for file in files if not (folder / file.name).is_file()]


def _fetch_weights(listing: Listing, weights: list[HubFile], missing: list[HubFile], is_quiet: bool) -> None:
    model, total = listing.model, _bytes_of(weights)
    _require_room(listing, missing)
    done = total - sum(_bytes_left(model, file) for file in missing)
    is_quiet = is_quiet or done == total  # another revision has brought them
    before = f"; {size(done)} of them are there" if done else ""
    files = f"{len(missing)} file" + "s" * (len(missing) > 1)
    words = f"Downloading {model}: {files} of weights, {size(total)}{before}, into {cache_root()}"
    logs.say(words, quiet=is_quiet)
    progress = download_progress(model.id, total, done, is_quiet=is_quiet)
    try:
        download(listing, missing, progress)
    except KeyboardInterrupt:
        progress.close()
        there = f"{size(progress.done)} of {size(total)} are in the cache"
        logs.say(f"The download of {model} was stopped. {there}, and the same command goes on from there.", quiet=False)
        raise
    finally:
        progress.close()


def _judge_listing(listing: Listing, parts: _Parts, wanted: FileKinds) -> None:
    """Refuse a repository that lacks files that every model has, before downloading anything."""
    names = {file.name for file in listing.files}
    lacks = ""
    if not parts.weights and (known := labels(names)):
        lacks = f"its weights are GGUF files, {', '.join(known)}. Name one of them: {listing.model.id}:{known[0]}"
    elif "config.json" not in names:
        lacks = "it holds no config.json. Name the repository of a whole model"
    elif not parts.weights:
        others = ", ".join(f"*{suffix}" for suffix in other_weights(names))
        there = f"its weights are {others}, and only *.safetensors are read" if others else "it holds no *.safetensors"
        lacks = f"{there}. Look for another repository of the same model"
    elif wanted.tokenizer and not (names & _TOKENIZERS or any(map(is_vocabulary, names))):
        lacks = "it holds no tokenizer. Give the folder or hub id of one with tokenizer=…"
    if lacks:
        raise ConfigError(f"{listing.model} can't run here: {lacks}. Nothing was downloaded.")


def _judge_config(listing: Listing, parts: _Parts, folder: Path) -> None:
    """Refuse a model that a worker wouldn't load, before downloading its weights."""
    [survey] = ask_survey([folder], without_weights=True).models
    if survey.refusal is not None:
        nothing = f"None of its weights were downloaded ({size(_bytes_of(parts.weights))})."
        raise ConfigError(f"{listing.model} can't run here: {survey.refusal.rstrip('.')}. {nothing}")


def _require_room(listing: Listing, missing: list[HubFile]) -> None:
    need = sum(_bytes_left(listing.model, file) for file in missing)
    root = cache_root()
    there = next(folder for folder in (root, *root.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if need > free:
        raise ConfigError(
            f"{listing.model} does not fit on the disk: {size(need)} are still to be downloaded into {root}, and "
            f"{size(free)} are free there, {size(need - free)} too little. Free some (`penstock rm` removes models), "
            "or name a folder with more room by HF_HUB_CACHE."
        )


def _bytes_of(files: list[HubFile]) -> int:
    return sum(file.size for file in files)


def _bytes_left(model: HubName, file: HubFile) -> int:
    """Bytes still to download: without those of an earlier attempt, or of another revision."""
    return file.size - bytes_of_blob(model.id, file.digest, file.size)


def _cached(model: HubName, wanted: FileKinds, error: Exception) -> Path:
    """The earlier download, if it is complete."""
    kind, why = UnknownToHub if is_unknown(error) else NotOnHub, reason_of(error, model)
    folder = cached_snapshot(model)
    missing = missing_weights(folder, model.id) if folder is not None and wanted.weights else []
    if folder is None:
        raise kind(f"{model} is not in the cache {cache_root()}; {why}")
    if missing:
        names = f"{', '.join(missing[:3])}{', …' * (len(missing) > 3)}"
        raise kind(f"of {model} the cache {cache_root()} lacks {names}; {why}")
    return folder


def _broken_off(error: Exception, model: HubName) -> PenstockError:
    root = cache_root()
    if isinstance(error, Damaged):
        why, then = f"{error}; it was removed", "The same call fetches it again; a proxy may stand between"
    elif isinstance(error, (NoProgress, Stalled)):
        why, then = f"{error}", "The same call goes on from there; HF_ENDPOINT names another hub"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        why, then = f"the disk with {root} is full", "Free some, and the same call goes on from there"
    elif isinstance(error, (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)):
        why, then = f"{error}", "HF_HUB_CACHE names another folder for downloads"
    else:
        why, then = reason_of(error, model), "What came is in the cache, and the same call goes on from there"
    return PenstockError(f"The download of {model} broke off: {why}. {then}.")


# Some models have several templates, `penstock convert --per-rank` lists each rank's pieces, and sentence-transformers
# keeps the pooling and the layers behind it in folders such as 1_Pooling and 2_Dense.
_STEM = r"[^/\\\x00-\x1f]{1,200}"
_DESCRIPTIONS = re.compile(
    rf"{_STEM}\.(json|jinja)|additional_chat_templates/{_STEM}\.jinja|rank-\d+-of-\d+/pieces\.json"
    r"|\d{1,2}_[A-Za-z]{1,40}/(config\.json|model\.safetensors)"
)
_WEIGHTS = re.compile(rf"(rank-\d+-of-\d+/)?{_STEM}\.safetensors")
# The same weights again under Mistral's own names, and files of adapters or of Paddle's trainer.
_NOT_THE_MODEL = ("consolidated", "adapter_model", "optimizer", "master_weights")
# Other formats of weights, for an error message that says what there is instead.
_OTHER_WEIGHTS = (".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".pdparams", ".onnx")


def is_description(name: str) -> bool:
    return _DESCRIPTIONS.fullmatch(name) is not None


def is_vocabulary(name: str) -> bool:
    return any("/" not in name and fnmatchcase(name, pattern) for pattern in VOCABULARY_FILES)


def is_weights(name: str) -> bool:
    return _WEIGHTS.fullmatch(name) is not None and not name.startswith(_NOT_THE_MODEL)


def other_weights(names: Iterable[str]) -> list[str]:
    """Kinds of weight files that this engine doesn't read."""
    return sorted({suffix for name in names for suffix in _OTHER_WEIGHTS if name.endswith(suffix)})
