"""Finds everything that one downloaded model has on the disk, and removes it.

In the hub's cache that is the repository's folder and its locks; in Penstock's, the tokenizer and packed weights made
from it. Links are removed, but not their targets elsewhere.
"""

import dataclasses
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.files.cache_folder import cache_folder
from ....protocol.files.own_folder import own_folders
from ...machine import ask_survey
from ...text.convert_tokenizer import converted_before, remove_converted
from ..model_names import HubName, hub_name, nearest_model
from .cache import (
    cache_root,
    cached_snapshot,
    is_being_written,
    is_locked,
    locks_folder,
    repository_folder,
    unfinished_blobs,
)

# The worker's mark for the folder of packed weights.
PACKED_WEIGHTS = "packed weights"


@dataclasses.dataclass
class Removal:
    """Everything to be removed."""

    model: HubName
    folders: list[Path]
    files: list[Path]
    tokenizers: list[Path] = dataclasses.field(default_factory=list)
    packed: list[Path] = dataclasses.field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        return sum(map(_bytes_in, (*self.folders, *self.files, *self.tokenizers, *self.packed)))

    @property
    def places(self) -> list[Path]:
        return [path for path in (*self.folders, *self.tokenizers, *self.packed) if path.exists()]

    def run(self) -> None:
        try:
            for path in (*self.files, *self.packed):
                path.unlink(missing_ok=True)
            for folder in self.folders:
                if os.path.lexists(folder):
                    shutil.rmtree(folder)
        except OSError as error:
            raise PenstockError(f"{self.model} could not be removed completely: {error}.") from error
        for made in self.tokenizers:
            remove_converted(made)


def removal_of(model: HubName) -> Removal:
    """Plan the removal; raises `ConfigError` if the model isn't in the cache, or is being downloaded."""
    repository = repository_folder(model.id)
    try:
        is_folder = stat.S_ISDIR(repository.lstat().st_mode)
    except OSError:
        is_folder = False
    if not is_folder:
        hint = nearest_model(model.id, (), str(cache_root()), has_folders=False)
        raise ConfigError(f"{model.id} is not in the cache {cache_root()}.{hint} `penstock models` lists what is.")
    if any(map(is_being_written, unfinished_blobs(model.id))):
        raise ConfigError(f"{model.id} is being downloaded by another process. Stop that first.")
    removal = _everything(model, repository) if model.revision is None else _of_revision(model)
    if any(map(_is_mapped, removal.packed)):
        raise ConfigError(f"{model.id} is in use: a running process has its packed weights mapped. End that first.")
    return removal


def _everything(model: HubName, repository: Path) -> Removal:
    snapshots = [path for path in repository.glob("snapshots/*") if path.is_dir()]
    return Removal(model, [repository, locks_folder(model.id)], [], *_made_from(snapshots))


def is_of(model: HubName, name: str) -> bool:
    """Whether a model with this name, an id or a path, is part of the downloaded model."""
    named = hub_name(name)
    is_path = Path(name).is_absolute() and Path(name).is_relative_to(repository_folder(model.id).resolve())
    return is_path or (named is not None and named.id == model.id)


def _of_revision(model: HubName) -> Removal:
    """Plan for a revision: its snapshot, with the names and blobs that no other revision needs."""
    from huggingface_hub import scan_cache_dir

    snapshot = cached_snapshot(model)
    if snapshot is None:
        raise ConfigError(f"{model} is not in the cache {cache_root()}. `penstock models` lists what is.")
    folder = repository_folder(model.id)
    cache = scan_cache_dir(cache_root())
    # Compare folders: another repository may have a revision of the same name.
    found = next(each for each in cache.repos if each.repo_path == folder.resolve())
    plan = dataclasses.replace(cache, repos=frozenset({found})).delete_revisions(snapshot.name)
    if plan.repos:  # there is no other revision of it
        return _everything(model, folder)
    return Removal(model, [snapshot], sorted(plan.refs | plan.blobs), *_made_from([snapshot]))


def _made_from(snapshots: list[Path]) -> tuple[list[Path], list[Path]]:
    """Tokenizers and packed weights made from these snapshots."""
    tokenizers: list[Path] = []
    packed: list[Path] = []
    for snapshot in snapshots:
        with suppress(PenstockError, OSError):  # nothing was made from an odd file
            if (made := converted_before(snapshot)) is not None:
                tokenizers.append(made)
    identities = [each.identity for each in ask_survey(snapshots).models] if snapshots else []
    with suppress(ConfigError):  # there is no cache
        packed += _packed(identities)
    return tokenizers, packed


def _packed(identities: Iterable[str]) -> Iterator[Path]:
    for folder in own_folders(cache_folder(), "weights", PACKED_WEIGHTS):
        for one in filter(None, identities):
            yield from folder.glob(f"{one}*")


def _is_mapped(path: Path) -> bool:
    """Whether a running model has mapped it and holds a lock on it."""
    return is_locked(path, fcntl.LOCK_EX)


def _bytes_in(path: Path) -> int:
    """The size of a folder's own files; those behind links are counted where they are."""
    if not path.is_dir():
        return path.lstat().st_size if os.path.lexists(path) else 0
    found = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(each.lstat().st_size for each in found if not each.is_symlink())
