"""Whether to attach to the daemon, as the option `connect` says.

auto: if a daemon runs and has that model with those options, else the caller starts a private tree, with one notice.
require: or raise. start: start a daemon first where none runs. A path: the daemon that listens there, as with require.
Knows nothing of requests.
"""

import os
from pathlib import Path
from typing import Any

from ....protocol.attach import ATTACH_PROTOCOL, Attach, Attached, Declined, daemon_socket
from ....protocol.config import EngineConfig
from ....protocol.errors import ConfigError, EngineDeadError, PenstockError
from ....protocol.option_rules import CONNECTS
from ....protocol.utf8 import names_in_utf8
from ...console import logs
from .connection import Line
from .patience import Patience
from .session import AttachedSession
from .transport import DaemonTransport

# Each client's own affair: seeds are counted for each, and the others don't reach the tree.
_OWN = ("connect", "quiet", "window", "seed")
# Options that name a file or a folder, as seen from where the caller is.
_PATHS = ("tokenizer", "chat_template", "reasoning_parser_plugin", "tool_parser_plugin", "trace", "record")


def attach(model: str | os.PathLike[str], options: dict[str, Any]) -> AttachedSession | None:
    """None: there is none to attach to, and `connect` leaves the choice."""
    config = EngineConfig.from_options(model, **options)
    address = daemon_socket() if config.connect in CONNECTS else Path(config.connect)
    line = _line(config.connect, address)
    if isinstance(line, OSError):
        if config.connect != "auto":
            raise ConfigError(
                f"connect={config.connect!r}: no daemon listens at {address} ({line.strerror or line}). Start one with "
                "`penstock start`, or use connect='auto' for a private tree where there is none."
            )
        runs_none = isinstance(line, (FileNotFoundError, ConnectionRefusedError))
        return _none("no daemon runs;" if runs_none else f"no daemon can be reached ({line});", config)
    try:
        attached = _attached(line, config, options)
        if isinstance(attached, Attached):
            client = DaemonTransport(line, config.watchdog_timeout)
            return AttachedSession(client, attached, config, is_quiet=logs.is_quiet(config.quiet))
    except BaseException as error:
        line.close()
        if config.connect == "auto" and isinstance(error, EngineDeadError):  # it hangs, or ends just now
            return _none(str(error), config)
        raise
    line.close()
    refusal = attached.failure.error()
    if config.connect != "auto" or not attached.is_disagreement:
        raise refusal
    return _none(str(refusal), config)


def _none(why: str, config: EngineConfig) -> AttachedSession | None:
    logs.say(f"connect: {why} {config.model} gets a private tree.", quiet=logs.is_quiet(config.quiet))
    return None


def _line(connect: str, address: Path) -> Line | OSError:
    try:
        return Line(address)
    except OSError as error:
        if connect != "start":
            return error
    from ...daemon.background import LINGER_SECONDS, start_daemon

    start_daemon(["--no-http", "--linger", str(LINGER_SECONDS)], address)
    return Line(address)


def _attached(line: Line, config: EngineConfig, options: dict[str, Any]) -> Attached | Declined:
    given = {name: value for name, value in EngineConfig.given(options).items() if name not in _OWN}
    given = {name: _absolute(value) if name in _PATHS else value for name, value in given.items()}
    seed = config.seed if options.get("seed") is not None else None
    may_add = config.connect == "start"
    with Patience(line, config.watchdog_timeout):
        with names_in_utf8():
            line.send(Attach(ATTACH_PROTOCOL, config.model, _absolute(config.model), given, seed, may_add))
        answer = line.receive()
    if answer is None:
        raise line.lost()
    if not isinstance(answer, (Attached, Declined)):
        raise PenstockError(f"The daemon at {line.address} answered with {type(answer).__name__}.")
    return answer


def _absolute(name: str) -> str:
    path = Path(os.path.expanduser(name))
    return str(path.resolve()) if os.path.exists(path) else name
