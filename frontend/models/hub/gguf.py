"""GGUF files of a repository on the hub: `OWNER/NAME:Q4_K_M` is the model of that quantization, all its parts.

They are downloaded into the hub's cache like other weights, with the vision encoder (`mmproj`), and found there
offline. `gguf_names.py` chooses the files.
"""

from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.parts import SUFFIX
from ..gguf.find import GgufFiles
from ..model_names import GgufName
from .cache import cache_root, cached_folder, remember, snapshot_folder
from .gguf_names import ChosenFiles, chosen_files
from .repository import hub_errors, is_unknown, listing_of, reason_of
from .snapshot import NotOnHub, UnknownToHub, check, fetch


def gguf_snapshot(name: GgufName, *, is_quiet: bool = False, is_checked: bool = False) -> GgufFiles:
    """Its files in the hub's cache, after downloading missing or broken ones. Raises like `snapshot`."""
    try:
        listing = listing_of(name.model)
    except hub_errors() as error:
        return _cached(name, error)
    chosen = chosen_files([file.name for file in listing.files], name)
    folder = snapshot_folder(name.model, listing.commit)
    files = [file for file in listing.files if file.name in (*chosen.parts, chosen.encoder)]
    if is_checked:
        check(listing, files, folder)
    fetch(listing, files, folder, is_quiet)
    remember(name.model, listing.commit)
    return _in(folder, chosen)


def _cached(name: GgufName, failure: Exception) -> GgufFiles:
    kind, why = UnknownToHub if is_unknown(failure) else NotOnHub, reason_of(failure, name.model)
    folder = cached_folder(name.model)
    there = [str(path.relative_to(folder)) for path in folder.rglob(f"*{SUFFIX}")] if folder is not None else []
    if folder is None or not there:
        raise kind(f"{name} is not in the cache {cache_root()}; {why}")
    try:
        return _in(folder, chosen_files(there, name))
    except ConfigError as error:
        raise kind(f"of {name} the cache {cache_root()} holds no whole model ({error}); {why}") from None


def _in(folder: Path, chosen: ChosenFiles) -> GgufFiles:
    encoders = () if chosen.encoder is None else (folder / chosen.encoder,)
    return GgufFiles(tuple(folder / name for name in chosen.parts), encoders)
