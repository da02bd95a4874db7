"""Show the last lines of what the daemon in the background has said; with --follow, what it says from now on, too.

Knows nothing of what the lines mean.
"""

import argparse
import time
from pathlib import Path

from ...protocol.errors import PenstockError
from ..console.logs import daemon_log

USAGE = "[options]"

_LOOK_SECONDS = 0.2
_TAIL_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--lines", metavar="N", type=int, default=40, help="how many of the last lines (40)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    log = daemon_log()
    if not log.exists():
        raise PenstockError(f"No daemon has been in the background here: there is no {log}.")
    end = _show_tail(log, max(0, arguments.lines))
    while arguments.follow:
        time.sleep(_LOOK_SECONDS)
        end = _show_from(log, end)
    return 0


def _show_tail(log: Path, count: int) -> int:
    """Returns how far it was read."""
    with open(log, "rb") as file:
        start = max(0, file.seek(0, 2) - _TAIL_BYTES)
        file.seek(start)
        found = file.read()
    lines = found.decode(errors="replace").splitlines()
    print("\n".join(lines[len(lines) - min(count, len(lines)) :]), flush=True)
    return start + len(found)


def _show_from(log: Path, start: int) -> int:
    """Whole lines, so that no character is cut. A daemon that starts may have put a long log aside and begun anew."""
    try:
        with open(log, "rb") as file:
            start = start if start <= file.seek(0, 2) else 0
            file.seek(start)
            found = file.read()
    except FileNotFoundError:
        return 0
    whole = found[: found.rfind(b"\n") + 1]
    print(whole.decode(errors="replace"), end="", flush=True)
    return start + len(whole)
