"""Finds the files of a model: by a bundled name, a folder or GGUF file, one in another program's store, or a hub id.

From the hub, the files that the engine reads are downloaded into huggingface_hub's own cache (`hub/`). A model without
`tokenizer.json` gets a converted tokenizer in Penstock's cache, and GGUF files get a translated folder there.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...protocol.errors import ConfigError, ModelNotFoundError
from ...protocol.files.gguf.parts import SUFFIX
from ...protocol.files.gguf.refusals import file_name
from ...protocol.files.model_file import require_regular
from ...protocol.files.unreadable import foreign_model, pickle_in, pickle_refusal, pointer_in, pointer_refusal
from ...records import dataclass
from ..console import logs
from ..text.convert_tokenizer import converted
from .gguf.find import GgufFiles, gguf_files, no_such_file
from .gguf.translated import translated_folder, why_no_tokenizer
from .hub.cache import cache_root
from .hub.gguf import gguf_snapshot
from .hub.snapshot import FileKinds, NotOnHub, UnknownToHub, require_listed, snapshot
from .model_names import BUNDLED, GgufName, HubName, gguf_name, hub_name, is_stored_name, nearest_model
from .pooled_model import PooledModel
from .stores.stored_models import stored_model, stored_under

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The two folders that a tree reads from."""

    name: str  # as the user gave it
    folder: Path  # config.json, weights, generation_config.json
    tokenizer_folder: Path  # tokenizer.json
    draft_folder: Path | None = None  # of the model that drafts for it
    draft_tokenizer_folder: Path | None = None
    pooled: PooledModel | None = None  # if it gives numbers instead of text


def find_model(
    model: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    *,
    is_quiet: bool = False,
) -> ModelFiles:
    """Find a model, and its tokenizer if that is elsewhere, downloading missing files."""
    name = os.fspath(model)
    _say_unused(name, revision, is_quiet=is_quiet)
    folder = _find_folder(name, revision, FileKinds(tokenizer=tokenizer is None), is_quiet=is_quiet)
    _require_config(folder)
    if (pointer := pointer_in(folder)) is not None:
        raise ConfigError(pointer_refusal(pointer))
    if (pickle := pickle_in(folder)) is not None:
        raise ConfigError(pickle_refusal(pickle))
    return ModelFiles(name, folder, _with_tokenizer(folder) if tokenizer is None else find_tokenizer(tokenizer))


def require_known(model: str, revision: str | None = None) -> None:
    """Raise if there is no such model, as far as that is known without a download."""
    folder = _found(model, revision, require_listed, lambda name: require_listed(name.model))
    if isinstance(folder, Path):
        _require_config(folder)


def _require_config(folder: Path) -> None:
    try:
        require_regular(folder / "config.json")
    except FileNotFoundError:
        raise ModelNotFoundError(
            foreign_model(folder) or f"{folder} has no config.json, so it is not a model's folder. {_advice(folder)}"
        ) from None


def _advice(folder: Path) -> str:
    """Say what to do about a folder without a config."""
    of_module = next((path.parent.name for path in sorted(folder.glob("[0-9]*_Transformer/config.json"))), None)
    if of_module is not None and (folder / "modules.json").is_file():
        return f"sentence-transformers' older files have it in {of_module}: copy what is in there next to modules.json."
    return "Give the folder that holds config.json and the *.safetensors files, or a GGUF file."


def find_tokenizer(tokenizer: str | os.PathLike[str], revision: str | None = None) -> Path:
    """The folder with the `tokenizer.json` of a bundled name, folder or hub id; converted if there is none."""
    name = os.fspath(tokenizer)
    _say_unused(name, revision)
    path = Path(os.path.expanduser(name))
    if path.name == "tokenizer.json" and os.path.isfile(path):
        return path.parent
    return _with_tokenizer(_find_folder(name, revision, FileKinds(weights=False)))


def _say_unused(name: str, revision: str | None, *, is_quiet: bool = False) -> None:
    if revision is not None and _on_this_machine(name) is not None:
        words = f"revision has no effect: {name} lies on this machine."
        logs.say(words, quiet=logs.is_quiet(is_quiet))


def _find_folder(name: str, revision: str | None, wanted: FileKinds, *, is_quiet: bool = False) -> Path:
    """The folder for a bundled name, a path, or a hub id; only wanted files are downloaded."""
    found = _found(
        name, revision, partial(snapshot, wanted=wanted, is_quiet=is_quiet), partial(gguf_snapshot, is_quiet=is_quiet)
    )
    return _translated(name, found) if isinstance(found, GgufFiles) else found


def _translated(name: str, files: GgufFiles) -> Path:
    try:
        return translated_folder(files)
    except ConfigError as error:
        if is_stored_name(name):  # a store may name its files by digests alone
            raise ConfigError(f"{name} can't be loaded. {error}") from error
        raise


def _found(
    name: str,
    revision: str | None,
    from_hub: Callable[[HubName], Found],
    gguf_from_hub: Callable[[GgufName], GgufFiles | Found],
) -> Path | GgufFiles | Found:
    if (here := _on_this_machine(name)) is not None:
        return here
    is_taken = os.path.exists(os.path.expanduser(name))
    try:
        if (on_hub := hub_name(name, revision)) is not None and not is_taken:
            return from_hub(on_hub)
        if (gguf_on_hub := gguf_name(name, revision)) is not None and not is_taken:
            return gguf_from_hub(gguf_on_hub)
    except NotOnHub as error:
        raise _not_found(name, [*_tried(name), f"the hub: {error}"]) from None  # its many causes are in that sentence
    raise _not_found(name, [*_tried(name), "the hub (this is not a hub id)"])


def _on_this_machine(name: str) -> Path | GgufFiles | None:
    """Search another program's store, the bundled models, and paths. Raises if only this machine can be meant."""
    if is_stored_name(name):
        return stored_model(name)
    if name in BUNDLED and BUNDLED[name].is_dir():
        return BUNDLED[name]
    if not name:
        return None
    path = Path(os.path.expanduser(name))
    if (files := gguf_files(path)) is not None:
        return files
    if os.path.isdir(path):
        return path.resolve()
    if os.path.isfile(path) and (what := foreign_model(_absolute(path))) is not None:
        raise ModelNotFoundError(what)
    _require_usable(name, path)
    return None


def _tried(name: str) -> list[str]:
    """The paths that were tried on this machine."""
    path = Path(os.path.expanduser(name))
    bundled = f"the bundled model {name} (not installed)"
    why = "no name was given" if not name else "it is a file" if os.path.isfile(path) else "it does not exist"
    return [
        bundled if name in BUNDLED else f"bundled models ({', '.join(BUNDLED)})",
        f"the folder {_absolute(path)} ({why})",
    ]


def _require_usable(name: str, path: Path) -> None:
    """Refuse a path that is neither a folder nor a file, and a missing GGUF file, whose name can't mean the hub."""
    if os.path.exists(path):
        require_regular(path)
    elif path.suffix == SUFFIX and os.path.islink(path):
        raise ModelNotFoundError(
            f"{file_name(path)} is a link to a file that is not there. Download the model again, or give its own file."
        )
    elif path.suffix == SUFFIX:
        raise ModelNotFoundError(no_such_file(_absolute(path)) + _stored_hint(name))


def pull_model(model: HubName | GgufName, *, is_quiet: bool = False) -> ModelFiles:
    """Download from the hub, whatever folder of that name there is; existing files are checked and repaired."""
    try:
        if isinstance(model, GgufName):
            folder = translated_folder(gguf_snapshot(model, is_quiet=is_quiet, is_checked=True))
        else:
            folder = snapshot(model, FileKinds(), is_quiet=is_quiet, is_checked=True)
    except UnknownToHub as error:
        raise _not_found(str(model), [f"the hub: {error}"]) from None
    except NotOnHub as error:
        raise ModelNotFoundError(f"{model} can't be downloaded: {error}.") from None
    return ModelFiles(str(model), folder, _with_tokenizer(folder))


def _with_tokenizer(folder: Path) -> Path:
    if (folder / "tokenizer.json").exists():
        return folder
    if (refusal := why_no_tokenizer(folder)) is not None:
        raise ConfigError(refusal)
    return converted(folder)


def _not_found(name: str, tried: list[str]) -> ModelNotFoundError:
    places = "".join(f"\n  - {place}" for place in tried)
    hint = _address_hint(name) or _stored_hint(name) or nearest_model(name, BUNDLED, str(cache_root()))
    return ModelNotFoundError(f"No model {name!r} was found.{hint} Tried:{places}")


def _address_hint(name: str) -> str:
    scheme, marks, rest = name.partition("://")
    if not marks:
        return ""
    if scheme == "file":
        return f" A folder is given by its path: {rest!r}."
    on_hub = "/".join(rest.split("/")[1:3]) if rest.startswith(("huggingface.co/", "hf.co/")) else ""
    return f" Did you mean {on_hub}?" if on_hub else " No address is opened here: download the model, give its folder."


def _stored_hint(name: str) -> str:
    return f" Did you mean {stored}?" if (stored := stored_under(name)) else ""


def _absolute(path: Path) -> Path:
    """The absolute path; unchanged if the working folder was removed."""
    try:
        return path.absolute()
    except OSError:
        return path
