"""Serve models to all programs of this user on this machine, until Ctrl-C or SIGTERM. Scripts attach with `LLM("NAME",
connect="auto")`, other programs use HTTP. It exits if a model can't be loaded; with --lazy it loads models on first
use. SIGHUP reloads the configuration; on a terminal it stops the daemon.

This file reads the command line; the daemon is in `frontend/daemon`.
"""

import argparse
import asyncio
import shlex
import signal
import sys
from collections.abc import Callable

from ....protocol.errors import PenstockError
from ....protocol.processes.child import usual_signals
from ...console import logs
from ...daemon.background import ENDS, detach
from ...daemon.server import Daemon
from ..shared.options import obey_verbose, socket_of
from .daemon_options import add_daemon_options, settings_of

USAGE = "[MODEL ...] [options]"

_UNIT = """\
[Unit]
Description=Penstock, large language models on this machine
After=network.target

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
# Running requests have their time, then processes theirs.
TimeoutStopSec={seconds:.0f}
KillMode=mixed

[Install]
WantedBy=default.target
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_daemon_options(parser)
    # For `penstock start`: the end of a pipe to report when the daemon listens, and when it is ready.
    parser.add_argument("--detached", type=int, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    on_progress: Callable[[], None] = lambda: None  # noqa: E731
    is_foreground = arguments.detached is None
    if not is_foreground:
        on_progress = detach(arguments.detached)
    if arguments.config:
        arguments.config = arguments.config.absolute()
    settings = settings_of(arguments)
    if arguments.systemd:
        print(_UNIT.format(command=_command(["serve", *arguments.words]), seconds=settings.drain + 30), end="")
        return 0
    obey_verbose(arguments)
    usual_signals()
    logs.begin_dates()
    daemon = Daemon(
        socket_of(arguments),
        settings,
        lambda: settings_of(arguments),
        on_progress,
        is_foreground=is_foreground,
        ends_with_terminal=is_foreground and _belongs_to_terminal(),
    )
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(daemon.run())
    except PenstockError as error:
        if is_foreground:
            raise
        logs.say(f"{ENDS}{error}", quiet=False)
        return 1
    return 0


def _belongs_to_terminal() -> bool:
    """Whether it ends when its terminal closes, as other programs do. Under nohup, which ignores the signal, it
    doesn't."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return False
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _command(words: list[str]) -> str:
    own = [sys.executable, "-m", "penstock", *(word for word in words if word != "--systemd")]
    return " ".join(map(shlex.quote, own))
