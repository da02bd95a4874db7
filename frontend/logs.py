"""What a person at the keyboard sees on stderr, and where the children's own log lies.

One log file per tree in the user's state folder (`PENSTOCK_LOG_DIR`), the oldest removed. Answers never come here.
Knows nothing of what is said.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

_KEPT_LOGS = 40


def is_quiet(asked: bool) -> bool:
    return asked or os.environ.get("PENSTOCK_LOG", "").lower() in ("warning", "error", "quiet")


def say(text: str, *, quiet: bool) -> None:
    """A table, a notice, a warning; `quiet` silences it."""
    if not quiet and sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


def state_folder() -> Path:
    """Where what outlives a run is kept: logs, the chat's history."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "penstock"


def log_folder() -> Path:
    chosen = os.environ.get("PENSTOCK_LOG_DIR")
    return Path(chosen) if chosen else state_folder() / "logs"


def daemon_log() -> Path:
    """Where a daemon in the background writes what it would say to a terminal."""
    return log_folder() / "daemon.txt"


def new_log_file() -> Path:
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.name)[: -_KEPT_LOGS + 1]:
        with suppress(OSError):
            old.unlink()
    moment = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
    return folder / f"{stamp}-{int(moment % 1 * 1e6):06d}-{os.getpid()}.log"
