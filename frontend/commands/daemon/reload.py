"""Make the daemon reload its configuration. Connections stay open; a model in use changes when nobody uses it."""

import argparse

from ...daemon.background import reload_daemon
from ..shared.options import add_socket, socket_of

USAGE = "[options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    print(f"The configuration was reloaded: {reload_daemon(socket_of(arguments))}.")
    return 0
