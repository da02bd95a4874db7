"""Show the last lines of the background daemon's log; with --follow, keep printing new ones.

A daemon in the foreground has no log: the command says where its lines go instead.
"""

import argparse
import time
from contextlib import suppress
from pathlib import Path

from ....protocol.attach import DaemonStatus
from ....protocol.errors import PenstockError
from ....protocol.files.utf8 import shown
from ...console.logs import daemon_log
from ...daemon.background import daemon_status
from ..shared.options import add_socket, socket_of
from .status import foreground_words

USAGE = "[options]"

_LOOK_SECONDS = 0.2
_TAIL_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--lines", metavar="N", type=_count, default=40, help="number of lines (40)")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing until Ctrl-C")
    add_socket(parser)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of lines, 0 or more")
    return int(text[:18])


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    address = socket_of(arguments)
    log = _log_of(_running(address), daemon_log(address))
    end = _show_tail(log, arguments.lines)
    while arguments.follow:
        time.sleep(_LOOK_SECONDS)
        end = _show_from(log, end)
    return 0


def _running(address: Path) -> DaemonStatus | None:
    """The daemon's status; None if no daemon runs or it doesn't answer: then its log is still worth showing."""
    with suppress(PenstockError):
        return daemon_status(address)
    return None


def _log_of(running: DaemonStatus | None, log: Path) -> Path:
    if running is not None and not running.log:
        earlier = f" Logs of earlier background daemons are in {log}." if log.is_file() else ""
        raise PenstockError(
            f"The daemon that runs here (process {running.pid}) has no log: {foreground_words(running)}.{earlier}"
        )
    if running is not None and running.log != shown(log):  # it was started with other folders
        log = Path(running.log)
    if not log.exists():
        raise PenstockError(f"There is no log of a background daemon: {log} doesn't exist.")
    if not log.is_file():
        raise PenstockError(
            "The daemon has no log: no folder for it could be written to. Name one in PENSTOCK_LOG_DIR, and start the "
            "daemon again."
        )
    return log


def _show_tail(log: Path, count: int) -> int:
    """Show the last lines; returns how far the log was read."""
    with open(log, "rb") as file:
        end = file.seek(0, 2)
        start, found = end, b""
        while start > 0 and found.count(b"\n") <= count:
            start = max(0, end - max(_TAIL_BYTES, 2 * (end - start)))
            file.seek(start)
            found = file.read(end - start)
    lines = found.decode(errors="replace").splitlines(keepends=True)
    print("".join(lines[max(0, len(lines) - count) :]), end="", flush=True)
    return end


def _show_from(log: Path, start: int) -> int:
    """Show whole lines, so that no character is cut. A starting daemon may have moved a long log away and begun a
    new one."""
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
