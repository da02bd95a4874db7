"""Everything that Penstock keeps on disk for later, by kind: its size, its last use, and the model that it belongs to.

All of it can be made or downloaded again. What a running tree uses is marked: packed weights and prefixes are locked,
and each tree's launch file names its folders. Files of HTTP clients and logs are listed only: their owners remove them.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.files.cache_folder import cache_folder
from ....protocol.files.gguf.link import LINK_FILE, Link
from ....protocol.files.own_folder import MARK, is_own, own_folders, remove_own
from ....protocol.files.prefix_folder import WHAT as PREFIXES
from ....protocol.files.prefix_folder import kinds_in
from ....protocol.processes.launch import Launch
from ....protocol.processes.runtime_directory import runtime_base
from ....records import dataclass
from ...console.logs import log_folder, state_folder
from ...machine import ask_survey
from ...models.hub.cache import is_locked
from ...models.hub.removal import PACKED_WEIGHTS, removal_of
from ...models.model_names import HubName
from ...text.convert_tokenizer import converted_before
from .cached_models import LocalModel, bundled_models, cached_models

KINDS = ("prefixes", "weights", "tokenizers", "gguf", "digests", "downloads", "files", "logs")
LISTED_ONLY = {"files", "logs"}
# The marks of folders that are made once from some source.
_MADE = {"tokenizers": "converted tokenizer", "gguf": "translated GGUF file"}
_UNKNOWN = "?"


@dataclass
class Kept:
    """One thing that can be removed by itself."""

    kind: str
    model: str  # that it belongs to
    path: Path
    num_bytes: int
    last_use: float  # seconds since 1970
    is_in_use: bool
    remove: Callable[[], object]


def all_kept(prefix_dir: Path | None = None) -> list[Kept]:
    """Everything, by kind and the largest first; `prefix_dir` is a further folder of prefixes (`prefix_cache_dir`)."""
    downloads, in_use = list(cached_models()), _folders_in_use()
    folders = {model.name: model.folder for model in (*bundled_models(), *downloads)}
    found = [*_prefixes(prefix_dir), *_listed_only(), *(_download(model, in_use) for model in downloads)]
    with suppress(ConfigError):  # there is no cache
        found += [*_weights(folders), *_made_folders(folders, in_use), *_digests()]
    return sorted(found, key=lambda kept: (KINDS.index(kept.kind), -kept.num_bytes))


def _folders_in_use() -> set[Path]:
    """The folders that running trees were started with."""
    found: set[Path] = set()
    with suppress(PenstockError, OSError):
        for tree in runtime_base().glob("t*"):
            with suppress(OSError, msgspec.DecodeError):
                if is_locked(tree / MARK, fcntl.LOCK_SH):
                    launch = msgspec.msgpack.decode((tree / "launch").read_bytes(), type=Launch)
                    read = filter(None, (launch.model_folder, launch.tokenizer_folder, launch.draft_folder))
                    found |= {Path(each).resolve() for each in read}
    return found


def _prefixes(prefix_dir: Path | None) -> Iterator[Kept]:
    roots = [] if prefix_dir is None else [prefix_dir]
    with suppress(ConfigError):
        roots += own_folders(cache_folder(), "prefixes", PREFIXES)
    for kind in (kind for root in roots for kind in kinds_in(root)):
        about = kind.about
        rank = "" if about is None or about.ranks == 1 else f", rank {about.rank} of {about.ranks}"
        name = _UNKNOWN if about is None else f"{about.model}{rank}"
        yield Kept("prefixes", name, kind.folder, *_size_and_use(kind.folder), kind.is_in_use, kind.remove)


def _weights(folders: Mapping[str, Path]) -> Iterator[Kept]:
    kept = own_folders(cache_folder(), "weights", PACKED_WEIGHTS)
    paths = [path for folder in kept for path in folder.iterdir() if path.name != MARK]
    surveys = ask_survey(list(folders.values())).models if paths and folders else []
    names = {survey.identity: name for survey, name in zip(surveys, folders) if survey.identity}
    for path in paths:
        name = next((name for identity, name in names.items() if path.name.startswith(identity)), _UNKNOWN)
        remove = partial(path.unlink, missing_ok=True)
        yield Kept("weights", name, path, *_size_and_use(path), is_locked(path, fcntl.LOCK_EX), remove)


def _made_folders(folders: Mapping[str, Path], in_use: set[Path]) -> Iterator[Kept]:
    tokenizers: dict[Path | None, str] = {}
    for name, folder in folders.items():
        with suppress(PenstockError, OSError):
            tokenizers[converted_before(folder)] = name
    for kind, mark in _MADE.items():
        parent = cache_folder() / kind
        for path in parent.iterdir() if parent.is_dir() else ():
            if is_own(path, mark):
                name = tokenizers.get(path) or _name_of_gguf(path)
                remove = partial(remove_own, path, mark)
                yield Kept(kind, name, path, *_size_and_use(path), path.resolve() in in_use, remove)


def _name_of_gguf(folder: Path) -> str:
    with suppress(OSError, msgspec.DecodeError, IndexError):
        link = msgspec.json.decode((folder / LINK_FILE).read_bytes(), type=Link)
        return Path(link.files[0]).name
    return _UNKNOWN


def _digests() -> Iterator[Kept]:
    folder = cache_folder() / "digests"
    if folder.is_dir():
        yield Kept("digests", "all models", folder, *_size_and_use(folder), False, partial(_empty, folder))


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != MARK:
            path.unlink(missing_ok=True)


def _download(model: LocalModel, in_use: set[Path]) -> Kept:
    folder = model.folder.resolve()
    is_in_use = any(each.is_relative_to(folder) for each in in_use)
    remove = partial(_remove_download, HubName(model.name))
    return Kept("downloads", model.name, folder, model.size, _size_and_use(folder)[1], is_in_use, remove)


def _remove_download(model: HubName) -> None:
    removal_of(model).run()


def _listed_only() -> Iterator[Kept]:
    places = {"files": lambda: state_folder() / "files", "logs": log_folder}
    for kind, place in places.items():
        with suppress(PenstockError, OSError):
            if (folder := place()).is_dir():
                yield Kept(kind, "", folder, *_size_and_use(folder), False, lambda: None)


def _size_and_use(path: Path) -> tuple[int, float]:
    """The bytes in a file or folder, and when something in it was written or marked as used last."""
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] or [path]
    num_bytes, last_use = 0, 0.0
    for each in files:
        with suppress(OSError):
            status = each.stat()
            num_bytes += status.st_size
            last_use = max(last_use, status.st_mtime)
    return num_bytes, last_use
