"""Where a model lies in the hub's cache, by the layout that huggingface_hub documents.

HF_HUB_CACHE/models--OWNER--NAME/
    blobs/ETAG                    content, each once; ETAG.incomplete while it is being downloaded
    snapshots/COMMIT/FILE         links to blobs
    refs/REVISION                 the commit that a branch or tag meant when it was last downloaded
HF_HUB_CACHE/.locks/models--OWNER--NAME/
"""

import fcntl
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from ....protocol.errors import PenstockError
from ....protocol.files.model_file import read_model_settings
from ..model_names import HubName
from .library import prepare_hub

UNFINISHED = ".incomplete"
_COMMIT = re.compile(r"[0-9a-f]{40}")


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


def bytes_of_blob(model_id: str, etag: str) -> int:
    """How much of a content is there, whole or not, whichever revisions it belongs to."""
    whole = repository_folder(model_id) / "blobs" / etag
    for path in (whole, whole.with_name(etag + UNFINISHED)):
        with suppress(OSError):
            return path.stat().st_size
    return 0


def unfinished_blobs(model_id: str) -> list[Path]:
    return sorted(repository_folder(model_id).glob(f"blobs/*{UNFINISHED}"))


def is_being_written(path: Path) -> bool:
    """A process that downloads holds a lock on what it writes."""
    return is_locked(path, fcntl.LOCK_SH)


def is_locked(path: Path, kind: int) -> bool:
    """Whether another holds a lock on it beside which there can be none of this kind."""
    with suppress(OSError), open(path, "rb") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def cached_snapshot(model: HubName) -> Path | None:
    """What was downloaded of it last, whole or not; None if there is nothing."""
    folder = cached_folder(model)
    is_there = folder and ((folder / "config.json").is_file() or (folder / "tokenizer.json").is_file())
    return folder if is_there else None


def cached_folder(model: HubName) -> Path | None:
    """Where it would be; None if that isn't known here."""
    commit = model.asked_revision
    if not _COMMIT.fullmatch(commit):
        try:
            commit = (repository_folder(model.id) / "refs" / commit).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
    return snapshot_folder(model, commit)


def missing_weights(folder: Path, model_id: str) -> list[str]:
    """Files of weights that belong to a snapshot and are not there, as far as its own files tell."""
    index = read_model_settings(folder / "model.safetensors.index.json").get("weight_map")
    named = set(map(str, index.values())) if isinstance(index, dict) else set()
    if not named and unfinished_blobs(model_id) and not any(folder.rglob("*.safetensors")):
        named = {"model.safetensors"}
    return sorted(name for name in named if not (folder / name).is_file())


def remember(model: HubName, commit: str) -> None:
    """From now on the revision means that commit, also where the hub can't be asked.

    Told last: an update that was broken off leaves what was there before.
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
