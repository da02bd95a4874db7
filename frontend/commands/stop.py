"""End the daemon: requests that run have the seconds of its `drain`, then everything ends. One that has hung is killed.
"""

import argparse
from functools import partial

from ..daemon.background import stop_daemon
from .shared.options import add_socket, socket_of

USAGE = "[options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--drain", metavar="SECONDS", type=float, help="for running requests (as the daemon was told)")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.drain is not None and not 0 <= arguments.drain < 1e9:
        parser.error(f"--drain {arguments.drain}: must be seconds, 0 or more")
    stop_daemon(socket_of(arguments), arguments.drain, partial(print, flush=True))
    print("The daemon has ended.")
    return 0
