"""Remove downloaded models from the hub's cache, and the files that Penstock made from them. It shows how much space
this frees and asks first. Your own folders are never touched.
"""

import argparse
import sys
from contextlib import closing
from pathlib import Path

from ...protocol.errors import ConfigError, PenstockError
from ...protocol.files.sizes import size
from ..daemon.background import line_to, status_of
from ..models.hub.removal import is_of, removal_of
from ..models.model_names import BUNDLED, HubName, gguf_name, hub_name, is_stored_name
from .shared.options import add_socket, socket_of

USAGE = "ID [ID ...] [options]"

_NOT_LOADED = ("unloaded", "failed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="ID", nargs="+", help="hub id, as listed by `penstock models`")
    parser.add_argument("--revision", metavar="TEXT", help="remove only this branch, tag or commit")
    parser.add_argument("-y", "--yes", action="store_true", help="don't ask")
    add_socket(parser)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Remove models. Exit status 1 if one was not removed."""
    models = [_named(name, arguments.revision) for name in arguments.models]
    were_removed = [_remove(model, socket_of(arguments), is_asked=not arguments.yes) for model in models]
    return 0 if all(were_removed) else 1


def _named(name: str, revision: str | None) -> HubName:
    model = hub_name(name, revision)
    if name in BUNDLED:
        raise ConfigError(f"{name} comes with Penstock and is not in the cache; nothing was removed.")
    if is_stored_name(name):
        raise ConfigError(f"{name} is a model in another program's store; remove it with that program.")
    if (quantization := gguf_name(name, revision)) is not None:
        raise ConfigError(
            f"{name}: one quantization of a repository can't be removed alone. `penstock rm {quantization.model.id}` "
            "removes all that was downloaded of it."
        )
    if model is None:
        raise ConfigError(
            f"{name!r} is not a hub id, and only downloads from the hub can be removed. Remove "
            "your own folders yourself."
        )
    return model


def _remove(model: HubName, socket: Path, *, is_asked: bool) -> bool:
    removal = removal_of(model)
    _refuse_what_is_loaded(model, socket)
    print(f"{model} takes {size(removal.num_bytes)}:", *removal.places, sep="\n  ", flush=True)
    if is_asked and not _agrees(model):
        print(f"{model} was kept.")
        return False
    before = removal.num_bytes
    removal.run()
    print(f"{model} was removed; {size(before - removal.num_bytes)} are freed.", flush=True)
    return True


def _agrees(model: HubName) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"There is no terminal to ask whether to remove {model}. Use --yes to remove it.")
    try:
        return input("Remove it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _refuse_what_is_loaded(model: HubName, socket: Path) -> None:
    """Refuse a model that a daemon has loaded: the daemon would have to download it again."""
    try:
        line = line_to(socket)
    except PenstockError:  # no daemon runs
        return
    with closing(line):
        served = status_of(line).models
    for each in served:
        if each.state not in _NOT_LOADED and is_of(model, each.model):
            raise ConfigError(
                f"The daemon has {model.id} in use ({each.name}, {each.state}). `penstock stop {each.name}` "
                "unloads it where nobody uses it (`penstock ps`)."
            )
