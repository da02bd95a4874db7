"""Download models from the Hugging Face hub, to use them offline later. It checks first whether the engine can run a
model, and downloads only the files that the engine reads. An interrupted download is resumed.
"""

import argparse

from ...protocol.errors import ConfigError
from ...protocol.files.sizes import size
from ..console.logs import is_quiet
from ..models.model_files import pull_model
from ..models.model_names import BUNDLED, GgufName, HubName, gguf_name, hub_name, is_stored_name
from .shared.cached_models import size_on_disk

USAGE = "ID [ID ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", metavar="ID", nargs="+", help="hub id: OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME:Q4_K_M"
    )
    parser.add_argument("--revision", metavar="TEXT", help="branch, tag or commit (main)")
    parser.add_argument("--quiet", action="store_true", help="hide progress")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    for model in [_named(name, arguments.revision) for name in arguments.models]:
        files = pull_model(model, is_quiet=is_quiet(arguments.quiet))
        print(f"{model} is ready: {size(size_on_disk(files.folder))} in {files.folder}", flush=True)
    return 0


def _named(name: str, revision: str | None) -> HubName | GgufName:
    if name in BUNDLED:
        raise ConfigError(f"{name} comes with Penstock; there is nothing to download.")
    if is_stored_name(name):
        raise ConfigError(f"{name} is a model in another program's store; download it with that program.")
    if (model := hub_name(name, revision) or gguf_name(name, revision)) is None:
        raise ConfigError(f"{name!r} is not a hub id, such as Qwen/Qwen3-0.6B.")
    return model
