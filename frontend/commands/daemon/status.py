"""Show whether a daemon is running, where, and with which models. Exit status 0 if one is running, 3 if not."""

import argparse
import time
from contextlib import closing

from ....protocol.attach import DaemonStatus, ModelStatus
from ....protocol.errors import PenstockError
from ...console.printable import on_one_line
from ...daemon.background import line_to, status_of
from ..shared.options import add_socket, socket_of

USAGE = "[options]"
NOT_RUNNING = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket(parser)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    address = socket_of(arguments)
    try:
        line = line_to(address)
    except PenstockError as error:
        print(error)
        return NOT_RUNNING
    with closing(line):
        print("\n".join(lines_of(status_of(line), time.time())))
    return 0


def lines_of(status: DaemonStatus, now: float) -> list[str]:
    models = [f"{model.name} ({model.state})" for model in status.models]
    rows = [
        ("process", f"{status.pid}, penstock {status.version}, for {span(now - status.started)}"),
        ("socket", status.address),
        ("HTTP", status.http or "none"),
        ("models", ", ".join(models) or "none"),
        ("clients", str(status.clients)),
        ("log", status.log or f"none: {foreground_words(status)}"),
    ]
    rows += [(model.name, words) for model in status.models if (words := last_error(model, now))]
    state = "The daemon is shutting down" if status.is_draining else "A daemon runs"
    return [state, *(on_one_line(f"  {name:<8} {text}") for name, text in rows)]


def foreground_words(status: DaemonStatus) -> str:
    """Where a daemon in the foreground writes its messages."""
    where = f"standard error, {status.said_to}" if status.said_to else "standard error"
    return f"it runs in the foreground, and logs to its {where}"


def last_error(model: ModelStatus, now: float) -> str:
    """A model's last error on one line, even if the model has recovered."""
    if not model.last_error:
        return ""
    return f"last error {span(now - model.last_error_time)} ago: {' '.join(model.last_error.split())}"


def span(seconds: float) -> str:
    """A duration in everyday units."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
