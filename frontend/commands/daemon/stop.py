"""Stop the daemon: running requests get `drain` seconds to finish. A daemon that hangs is killed. With names, unload
these models and keep the daemon running; they are loaded again on next use.
"""

import argparse
from functools import partial

from ...daemon.background import stop_daemon, unload_model
from ..shared.options import add_socket, socket_of

USAGE = "[MODEL ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help="models to unload, by their names in `penstock ps`")
    add_socket(parser)
    parser.add_argument(
        "--drain", metavar="SECONDS", type=float, help="seconds for running requests to finish (the daemon's setting)"
    )


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
    print("The daemon has stopped.")
    return 0
