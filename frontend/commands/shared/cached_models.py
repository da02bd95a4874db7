"""Lists the models on this machine: those that come with the package, and those in the hub's cache."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...models.hub.cache import prepare_hub, unfinished_blobs
from ...models.model_names import BUNDLED


class LocalModel(NamedTuple):
    name: str  # accepted by `LLM`
    folder: Path
    size: int  # bytes on disk
    unfinished: int = 0  # bytes of an interrupted download among these
    is_gguf: bool = False  # the folder has only a config, made from its header
    refusal: str = ""  # why it can't be inspected


def bundled_models() -> Iterator[LocalModel]:
    for name, folder in BUNDLED.items():
        if folder.is_dir():
            yield LocalModel(name, folder, size_on_disk(folder))


def cached_models() -> Iterator[LocalModel]:
    """The models in huggingface_hub's cache, by name; for each the revision of `main`, otherwise the newest."""
    prepare_hub()
    # Imported here: neither bundled models nor folders need it.
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, ValueError):  # ValueError: the cache's path is a file
        return
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id.lower()):
        if repo.repo_type == "model" and repo.revisions:
            newest = max(repo.revisions, key=lambda revision: ("main" in revision.refs, revision.last_modified))
            unfinished = _size_of(unfinished_blobs(repo.repo_id))
            yield LocalModel(repo.repo_id, newest.snapshot_path, repo.size_on_disk + unfinished, unfinished)


def models_in(folder: Path) -> Iterator[LocalModel]:
    """The folder itself if it is a model's, otherwise the models directly inside it."""
    folders = [folder] if (folder / "config.json").is_file() else sorted(folder.iterdir())
    for each in folders:
        if (each / "config.json").is_file():
            yield LocalModel(str(each), each, size_on_disk(each))


def size_on_disk(folder: Path) -> int:
    return _size_of(path for path in folder.rglob("*") if path.is_file())


def _size_of(files: Iterable[Path]) -> int:
    """Add up the sizes of those that are still there: a download renames what it has finished."""
    size = 0
    for path in files:
        with suppress(FileNotFoundError):
            size += path.stat().st_size
    return size
