"""End the daemon: requests that run have --drain seconds, then everything ends. One that has hung is killed.

Knows nothing of what it does until then.
"""

import argparse

from ..daemon.background import stop_daemon
from .socket_option import add_socket, socket_of

USAGE = "[options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)
    parser.add_argument("--drain", metavar="SECONDS", type=float, default=30.0, help="for running requests (30)")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if not 0 <= arguments.drain < 1e9:
        parser.error(f"--drain {arguments.drain}: must be seconds, 0 or more")
    for sentence in stop_daemon(socket_of(arguments), arguments.drain):
        print(sentence)
    print("The daemon has ended.")
    return 0
