"""Watch models at work: tokens per second, rows, memory, prefix hits, drafts, latency, and your requests.

Without an address it watches this user's daemon. An address such as http://127.0.0.1:8000 is that of any server of
Penstock's. A key for it comes from --api-key-file or the variable PENSTOCK_API_KEY.
"""

import argparse
import json
import os
import sys
import time
from contextlib import suppress

from ...http.options import read_api_keys
from ..shared.options import add_socket, socket_of
from .top_figures import HttpSource, Look, SocketSource, Source, rows_of
from .top_table import MODELS, REQUESTS, table

USAGE = "[ADDRESS] [options]"

_KEY = "PENSTOCK_API_KEY"
_WIDE = 10_000  # columns of a pipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", nargs="?", metavar="ADDRESS", help="a server's, such as http://127.0.0.1:8000")
    parser.add_argument("--api-key-file", metavar="FILE", help="file whose first line is an API key")
    parser.add_argument("--interval", metavar="SECONDS", type=_seconds, default=1.0, help="between two looks (1)")
    parser.add_argument("--once", action="store_true", help="print the tables of one interval, and end")
    parser.add_argument("--json", action="store_true", help="the same as one line of JSON")
    add_socket(parser)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} must be seconds from 0.1 to 3600")
    return seconds


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    source = _source_of(arguments)
    if arguments.once or arguments.json:
        before = source.look()
        time.sleep(arguments.interval)
        _print(before, source.look(), as_json=arguments.json)
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        parser.error("the screen needs a terminal: give --once or --json to print instead.")
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        parser.error("the terminal is of an unknown kind (TERM): give --once or --json to print instead.")
    source.look()  # an address at which nobody listens is an error before there is a screen
    from .top_screen import show

    with suppress(KeyboardInterrupt):
        show(source, arguments.interval)
    return 0


def _source_of(arguments: argparse.Namespace) -> Source:
    key = os.environ.get(_KEY) or None
    if arguments.api_key_file is not None:
        key = read_api_keys(arguments.api_key_file)[0]
    if arguments.address is None:
        return SocketSource(socket_of(arguments), key)
    return HttpSource(arguments.address, key)


def _print(before: Look, now: Look, *, as_json: bool) -> None:
    rows = rows_of(before, now)
    if as_json:
        print(json.dumps({"models": [row._asdict() for row in rows], "requests": now.requests}))
        return
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        width = _WIDE
    print("\n".join(table(MODELS, rows, width)))
    if now.requests:
        print("\n" + "\n".join(table(REQUESTS, now.requests, width)))
