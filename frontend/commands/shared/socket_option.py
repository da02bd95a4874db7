"""The option `--socket`: which daemon a command talks to, by default this user's usual one."""

import argparse
from pathlib import Path

from ....protocol.attach import daemon_socket


def add_socket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", metavar="PATH", type=Path, help="the daemon's socket, if not this user's usual one")


def socket_of(arguments: argparse.Namespace) -> Path:
    return arguments.socket.absolute() if arguments.socket else daemon_socket()
