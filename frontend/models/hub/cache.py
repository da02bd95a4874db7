"""A model's paths in the hub's cache, by the layout that huggingface_hub documents.

HF_HUB_CACHE/models--OWNER--NAME/
    blobs/DIGEST                  content, each once; DIGEST.incomplete while it is being downloaded
    snapshots/COMMIT/FILE         links to blobs
    refs/REVISION                 the commit that a branch or tag meant when it was last downloaded
HF_HUB_CACHE/.locks/models--OWNER--NAME/
"""

import fcntl
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from ....protocol.errors import ConfigError, PenstockError
from ....protocol.files.cache_folder import caches_of_libraries
from ....protocol.files.model_file import read_model_settings, read_model_text
from ..model_names import HubName

UNFINISHED = ".incomplete"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def prepare_hub() -> None:
    """Call before importing huggingface_hub, which reads its cache's path once: it must not be another user's home."""
    os.environ.update(caches_of_libraries())


def cache_root() -> Path:
    prepare_hub()
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def repository_folder(model_id: str) -> Path:
    return cache_root() / f"models--{model_id.replace('/', '--')}"


def locks_folder(model_id: str) -> Path:
    return cache_root() / ".locks" / repository_folder(model_id).name


def snapshot_folder(model: HubName, commit: str) -> Path:
    return repository_folder(model.id) / "snapshots" / commit


def blob_path(model_id: str, digest: str) -> Path:
    return repository_folder(model_id) / "blobs" / digest


def bytes_of_blob(model_id: str, digest: str, size: int) -> int:
    """How many usable bytes of a content of that size exist, complete or not, whichever revision they belong to."""
    whole = blob_path(model_id, digest)
    with suppress(OSError):
        status = whole.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size == size:
            return size
    with suppress(OSError):
        status = whole.with_name(digest + UNFINISHED).lstat()
        if is_resumable(status) and status.st_size <= size:
            return status.st_size
    return 0


def is_resumable(status: os.stat_result) -> bool:
    """Whether an unfinished file may be written to: it has no other name, and nobody else can change it."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink <= 1 and status.st_uid == os.geteuid()


def unfinished_blobs(model_id: str) -> list[Path]:
    found = repository_folder(model_id).glob(f"blobs/*{UNFINISHED}")
    return sorted(path for path in found if path.is_file())


def is_being_written(path: Path) -> bool:
    """Whether a process is writing the file: it holds a lock on it."""
    return is_locked(path, fcntl.LOCK_SH)


def is_locked(path: Path, kind: int) -> bool:
    """Whether another process holds a lock that excludes one of this kind."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may be a pipe
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def cached_snapshot(model: HubName) -> Path | None:
    """The folder of its last download, complete or not; None if there is none."""
    folder = cached_folder(model)
    is_there = folder and ((folder / "config.json").is_file() or (folder / "tokenizer.json").is_file())
    return folder if is_there else None


def cached_folder(model: HubName) -> Path | None:
    """The folder's path; None if the model isn't known here."""
    commit = model.asked_revision
    if not _COMMIT.fullmatch(commit):
        ref = repository_folder(model.id) / "refs" / commit
        try:
            commit = read_model_text(ref).strip()
        except (FileNotFoundError, ConfigError):
            return None
    return snapshot_folder(model, commit)


def missing_weights(folder: Path, model_id: str) -> list[str]:
    """Weight files of a snapshot that are missing, as far as its own files tell."""
    index = read_model_settings(folder / "model.safetensors.index.json").get("weight_map")
    named = set(map(str, index.values())) if isinstance(index, dict) else set()
    if not named and unfinished_blobs(model_id) and not any(folder.rglob("*.safetensors")):
        named = {"model.safetensors"}
    return sorted(name for name in named if not (folder / name).is_file())


def remember(model: HubName, commit: str) -> None:
    """Record the commit for a revision, for times when the hub can't be reached.

    Called last, so that an interrupted update leaves the earlier state.
    """
    if _COMMIT.fullmatch(model.asked_revision):
        return
    ref = repository_folder(model.id) / "refs" / model.asked_revision
    try:
        if ref.is_file() and ref.read_text(encoding="utf-8") == commit:
            return
        ref.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=ref.parent, prefix=".", delete=False) as file:
            file.write(commit)
        os.replace(file.name, ref)
    except OSError as error:
        raise PenstockError(f"{ref} cannot be written: {error.strerror}.") from error
