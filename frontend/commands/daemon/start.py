"""Start a daemon in the background, with the options of `penstock serve`, and return when its models are loaded."""

import argparse
from functools import partial

from ....protocol.errors import PenstockError
from ...console.logs import daemon_log
from ...daemon.background import daemon_status, listens, start_daemon
from ..shared.options import socket_of
from .daemon_options import add_daemon_options, settings_of

USAGE = "[MODEL ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_daemon_options(parser)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    settings_of(arguments)  # report invalid settings here, where someone reads the message
    if arguments.systemd:
        parser.error("--systemd belongs to `penstock serve`: systemd wants a daemon that stays in the foreground")
    address = socket_of(arguments)
    if listens(address):
        raise PenstockError(
            f"A daemon listens at {address} already; see `penstock status`. To change what it serves, edit its "
            "configuration and `penstock reload`, or `penstock stop` it first."
        )
    start_daemon(arguments.words, address, partial(print, flush=True))
    status = daemon_status(address)
    where = f"{status.address} and {status.http}" if status.http else status.address
    print(f"The daemon is process {status.pid}, at {where}. Its log is {daemon_log(address)}.")
    return 0
