"""End the daemon: requests that run have the seconds of its `drain`, then everything ends. One that has hung is killed.
With names of models, unload these, and let the daemon go on: they are loaded again when they are next used.
"""

import argparse
from functools import partial

from ...daemon.background import stop_daemon, unload_model
from ..shared.options import add_socket, socket_of

USAGE = "[MODEL ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help="unload these, as `penstock ps` names them")
    add_socket(parser)
    parser.add_argument("--drain", metavar="SECONDS", type=float, help="for running requests (as the daemon was told)")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.drain is not None and not 0 <= arguments.drain < 1e9:
        parser.error(f"--drain {arguments.drain}: must be seconds, 0 or more")
    if arguments.models and arguments.drain is not None:
        parser.error("--drain is for the daemon's end; a model that is in use is not unloaded")
    for name in arguments.models:
        print(f"{unload_model(socket_of(arguments), name)} is unloaded.", flush=True)
    if arguments.models:
        return 0
    stop_daemon(socket_of(arguments), arguments.drain, partial(print, flush=True))
    print("The daemon has ended.")
    return 0
