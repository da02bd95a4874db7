"""A child process's own side: work common to all children, before and around their task; the parent's side is
`process.py`.

`begin` watches for the parent's end before anything else is loaded. `run_child`, for the processes of a tree, also
greets the front end, runs the body, and sends an exception up as a `ChildFailure`.
"""

import logging
import os
import platform
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...records import dataclass

if TYPE_CHECKING:
    from ..errors import ChildFailure
    from .launch import Launch
    from .sockets import Outbox

_PARENT_GONE = 3  # exit status


@dataclass
class Child:
    """A child process of a tree, as its own code sees it."""

    role: str
    rank: int
    directory: Path
    launch: "Launch"
    frontend: "Outbox"

    def fail(self, error: BaseException) -> NoReturn:
        """End this process, from any thread, and tell the caller why."""
        _fail(self.role, self.frontend, error)


def run_child(role: str, body: Callable[[Child], None]) -> None:
    """Run `body` as this process's work; never returns."""
    folder, *rest = begin()
    directory, rank = Path(folder), int(rest[1]) if rest else 0  # behind "--rank"
    # The caller handles Ctrl-C; a child in another session would not get it, unless someone sends it by hand.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    from ... import __version__
    from ..messages import Hello
    from .faults import point
    from .launch import Launch
    from .sockets import Outbox

    name = role if role != "worker" else f"worker {rank}"
    frontend = Outbox(directory, "frontend")
    try:
        _log_to(frontend, name)
        point(f"{role}.start")
        versions = {"penstock": __version__, "python": platform.python_version()}
        frontend.send(Hello(role=name, pid=os.getpid(), versions=versions))
        body(Child(name, rank, directory, Launch.read(directory), frontend))
        status = 0
    except BaseException as error:
        _fail(name, frontend, error)
    _exit(status)


def _fail(name: str, frontend: "Outbox", error: BaseException) -> NoReturn:
    try:
        frontend.send(_failure(name, error))
        with suppress(OSError):  # the log's disk may be full
            traceback.print_exception(error)
    finally:
        _exit(1)


def _exit(status: int) -> NoReturn:
    from .sockets import close_sockets

    try:
        close_sockets()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
    finally:
        # Not sys.exit: other threads (a library's pool, the touching of memory) must not delay the end.
        os._exit(status)


def begin() -> list[str]:
    """Call this first in a module that `start_child` runs, to end with the parent and reset signals.

    Returns the module's own arguments.
    """
    parent, life, *own = sys.argv[1:]
    _exit_with_parent(int(parent), int(life))
    usual_signals()
    return own


def usual_signals() -> None:
    """Undo the parent's ignored and blocked signals, which this process and its children would inherit."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)


def _exit_with_parent(parent: int, life: int) -> None:
    """Exit as soon as the parent has ended or closed our pipe.

    The kernel does that (`parent_pipe.py`) from a moment after the start; this covers that moment, and kernels that
    can't. A process that the parent forks may hold the pipe open, so the parent itself is watched, too.
    """
    os.set_inheritable(life, False)
    parent_fd = os.pidfd_open(parent)
    if os.getppid() != parent:  # it ended before we looked, and its pid may have been reused
        os._exit(_PARENT_GONE)
    poll = select.poll()
    poll.register(life, 0)  # POLLHUP is always reported
    poll.register(parent_fd, select.POLLIN)

    def watch() -> None:
        poll.poll()
        os._exit(_PARENT_GONE)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _failure(role: str, error: BaseException) -> "ChildFailure":
    from ..errors import ChildFailure

    return ChildFailure(role, type(error).__name__, str(error), "".join(traceback.format_exception(error)))


class _ToCaller(logging.Handler):
    """Warnings and errors also go to the caller's stderr."""

    def __init__(self, frontend: "Outbox", role: str) -> None:
        super().__init__(logging.WARNING)
        self.frontend, self.role = frontend, role

    def emit(self, record: logging.LogRecord) -> None:
        from ..messages import Notice

        try:
            self.frontend.send(Notice(self.role, record.getMessage()))
        except Exception:
            self.handleError(record)


def _log_to(frontend: "Outbox", role: str) -> None:
    to_file = logging.StreamHandler(sys.stderr)
    to_file.setFormatter(logging.Formatter(f"%(asctime)s {role} %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[to_file, _ToCaller(frontend, role)])
