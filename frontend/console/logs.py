"""Messages to the user on stderr, and the log files of child processes.

Each tree has one log file in the user's state folder (`PENSTOCK_LOG_DIR`), the oldest of ours removed. Answers are
never logged, and no answer fails because a line couldn't be written: such a line is lost.
"""

import hashlib
import logging
import os
import re
import time
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

from ...protocol.errors import PenstockError
from ...protocol.files.cache_folder import cache_place
from ...protocol.files.own_folder import is_own_file, new_file
from ...protocol.files.user_folders import FolderKind, UserFolder, place_for, reason
from ...protocol.processes.runtime_directory import daemon_socket
from . import standard_error

_LOGS = FolderKind("PENSTOCK_LOG_DIR", "XDG_STATE_HOME", ".local/state")
_STATE = _LOGS._replace(variable="")
_LOG = "log of a process tree"
_DAEMON_LOG = "log of a daemon"
_KEPT_LOGS = 40
_DAEMON_LOG_BYTES = 4 << 20
_INDENT = "  "  # of lines that belong to a dated one
_is_dated = False  # whether lines begin with a time
_is_verbose = False
_DAEMON_LOG_NAME = re.compile(r"daemon-[0-9a-f]{12}(\.before)?\.txt")
_NAME = re.compile(r"\d{8}-\d{6}-\d{6}-\d+\.log")


def is_quiet(asked: bool) -> bool:
    return asked or os.environ.get("PENSTOCK_LOG", "").lower() in ("warning", "error", "quiet")


def is_verbose() -> bool:
    """Return whether a start shows its whole memory plan."""
    return _is_verbose or os.environ.get("PENSTOCK_LOG", "").lower() in ("verbose", "info", "debug")


def be_verbose() -> None:
    """Show whole memory plans for the rest of this process, as `-v` asks."""
    global _is_verbose
    _is_verbose = True


def say(text: str, *, quiet: bool) -> None:
    """Print a table, a notice or a warning; `quiet` silences it."""
    if not quiet:
        standard_error.write_line(_dated(text) if _is_dated else text)


def columns() -> int | None:
    """The width of a wrapped line; None if no terminal shows it."""
    found = standard_error.columns()
    return found - len(_INDENT) if found is not None and _is_dated else found


def begin_dates() -> None:
    """From now on, begin each line of this process with the time, including Python's own logging."""
    global _is_dated
    _is_dated = True
    logging.basicConfig(handlers=[_StderrHandler()], format="%(levelname)s: %(message)s", force=True)


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record), quiet=False)


def _dated(text: str) -> str:
    """The text after the local time and its offset from UTC. Further lines are indented, so that a name with line
    breaks can't pass for an entry of its own."""
    indented = text.replace("\n", f"\n{_INDENT}")
    return f"{datetime.now().astimezone().isoformat(timespec='milliseconds')} {indented}"


@cache
def say_places_once(*, quiet: bool) -> None:
    """Print one notice if logs or caches are in the temporary folder because nothing better can be written."""
    with suppress(PenstockError, OSError):
        places = {"Logs": place_for(_LOGS), "Caches": cache_place()}
        if passed := {name: place for name, place in places.items() if place.passed_over}:
            folders = " and ".join(dict.fromkeys(str(place.folder) for place in passed.values()))
            why = "; ".join(dict.fromkeys(place.passed_over for place in passed.values()))
            other = "PENSTOCK_LOG_DIR and PENSTOCK_CACHE name other folders."
            say(f"{' and '.join(passed).capitalize()} lie in {folders}: {why}. {other}", quiet=quiet)


def log_place() -> UserFolder:
    found = place_for(_LOGS)
    folder = found.folder / "logs"
    folder.mkdir(mode=0o700, exist_ok=True)
    return UserFolder(folder, found.passed_over)


def log_folder() -> Path:
    return log_place().folder


def state_folder() -> Path:
    """The folder for other files that outlive a run, such as the chat's history."""
    return place_for(_STATE).folder


def daemon_log(address: Path) -> Path:
    """The log file of the background daemon at that socket; the null device if none can be written."""
    try:
        return log_folder() / _daemon_log_name(address)
    except (PenstockError, OSError):
        return Path(os.devnull)


def _daemon_log_name(address: Path) -> str:
    """Each address has its own log, since several daemons may run at the same time."""
    if address == daemon_socket():
        return "daemon.txt"
    return f"daemon-{digest_of(address)}.txt"


def digest_of(address: Path) -> str:
    """Tells the files of a daemon from those of others."""
    return hashlib.blake2b(os.fsencode(address), digest_size=6).hexdigest()


def ready_daemon_log(address: Path) -> Path:
    """The same for a daemon that is starting. A long log of earlier ones is moved away."""
    try:
        folder = log_folder()
        log = folder / _daemon_log_name(address)
        _remove_oldest(folder, _DAEMON_LOG_NAME, _DAEMON_LOG, besides=log)
        if is_own_file(log, _DAEMON_LOG) and log.stat().st_size > _DAEMON_LOG_BYTES:
            _put_aside(log)
        if not is_own_file(log, _DAEMON_LOG):
            new_file(log, _DAEMON_LOG)  # refused where there is something else of that name
        return log
    except OSError as error:
        say(f"The daemon has no log: {reason(error)}. PENSTOCK_LOG_DIR names another folder for it.", quiet=False)
        return Path(os.devnull)


def _put_aside(log: Path) -> None:
    """Rename the log; the previously moved one is overwritten."""
    before = log.with_suffix(".before.txt")
    if not os.path.lexists(before) or is_own_file(before, _DAEMON_LOG):
        log.replace(before)


def new_log_file(*, quiet: bool) -> Path:
    """A log file for one tree; if no disk can be written, the null device and a notice."""
    try:
        folder = log_folder()
        _remove_oldest(folder, _NAME, _LOG)
        moment = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
        log = folder / f"{stamp}-{int(moment % 1 * 1e6):06d}-{os.getpid()}.log"
        new_file(log, _LOG)
        return log
    except OSError as error:
        say(f"No log is written: {reason(error)}. PENSTOCK_LOG_DIR names another folder for it.", quiet=quiet)
        return Path(os.devnull)


def _remove_oldest(folder: Path, names: re.Pattern[str], kind: str, besides: Path | None = None) -> None:
    """Remove all but the most recently written logs and the one about to be written."""
    with suppress(OSError):
        found = (folder / name for name in os.listdir(folder) if names.fullmatch(name))
        ours = sorted((log for log in found if is_own_file(log, kind) and log != besides), key=_when_written)
        for log in ours[: -_KEPT_LOGS + 1]:
            with suppress(OSError):
                log.unlink()


def _when_written(log: Path) -> tuple[int, str]:
    return log.stat().st_mtime_ns, log.name
