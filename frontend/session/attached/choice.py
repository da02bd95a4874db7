"""Decides whether to attach to the daemon, as the option `connect` says.

auto: attach if a daemon runs and has that model with those options; otherwise start a private tree, with one notice.
require: attach or raise. start: start a daemon first if none runs. A path: the daemon that listens there, as with
require.
"""

import os
from pathlib import Path
from typing import Any

from ....protocol.attach import ATTACH_PROTOCOL, Attach, Attached, Declined
from ....protocol.errors import ConfigError, EngineDeadError, PenstockError
from ....protocol.files.utf8 import names_in_utf8
from ....protocol.options.config import EngineConfig
from ....protocol.options.option_rules import CONNECTS
from ....protocol.options.speculation import SpeculativeConfig
from ....protocol.processes.runtime_directory import daemon_socket
from ...console import logs
from .connection import DaemonConnection
from .patience import Patience
from .session import AttachedSession
from .transport import DaemonTransport

# Options that each client keeps to itself: seeds are counted per client, and the others don't concern the tree.
_OWN = ("connect", "quiet", "window", "seed")
# Options that name a file or folder, relative to the caller's folder.
_PATHS = ("tokenizer", "chat_template", "reasoning_parser_plugin", "tool_parser_plugin", "trace", "record")


def attach(model: str | os.PathLike[str], options: dict[str, Any]) -> AttachedSession | None:
    """Attach to the daemon; None if there is none and `connect` allows a private tree."""
    config = EngineConfig.from_options(model, **options)
    address = daemon_socket() if config.connect in CONNECTS else Path(config.connect)
    connection = _connected(config.connect, address)
    if isinstance(connection, OSError):
        if config.connect != "auto":
            raise ConfigError(
                f"connect={config.connect!r}: no daemon listens at {address} ({connection.strerror or connection}). "
                "Start one with `penstock start`, or use connect='auto' for a private tree if there is none."
            )
        runs_none = isinstance(connection, (FileNotFoundError, ConnectionRefusedError))
        return _none("no daemon runs;" if runs_none else f"no daemon can be reached ({connection});", config)
    try:
        attached = _attached(connection, config, options)
        if isinstance(attached, Attached):
            transport = DaemonTransport(connection, config.watchdog_timeout)
            return AttachedSession(transport, attached, config, is_quiet=logs.is_quiet(config.quiet))
    except BaseException as error:
        connection.close()
        if config.connect == "auto" and isinstance(error, EngineDeadError):  # it hangs, or is just ending
            return _none(str(error), config)
        raise
    connection.close()
    refusal = attached.failure.error()
    if config.connect != "auto" or not attached.is_disagreement:
        raise refusal
    return _none(str(refusal), config)


def _none(why: str, config: EngineConfig) -> AttachedSession | None:
    logs.say(f"connect: {why} {config.model} gets a private tree.", quiet=logs.is_quiet(config.quiet))
    return None


def _connected(connect: str, address: Path) -> DaemonConnection | OSError:
    try:
        return DaemonConnection(address)
    except OSError as error:
        if connect != "start":
            return error
    from ...daemon.background import LINGER_SECONDS, start_daemon

    start_daemon(["--no-http", "--linger", str(LINGER_SECONDS)], address)
    return DaemonConnection(address)


def _attached(connection: DaemonConnection, config: EngineConfig, options: dict[str, Any]) -> Attached | Declined:
    given = {name: value for name, value in EngineConfig.given(options).items() if not _is_own(name, value)}
    given = {name: _absolute(value) if name in _PATHS else value for name, value in given.items()}
    seed = config.seed if options.get("seed") is not None else None
    may_add = config.connect == "start"
    with Patience(connection, config.watchdog_timeout):
        with names_in_utf8():
            connection.send(Attach(ATTACH_PROTOCOL, config.model, _absolute(config.model), given, seed, may_add))
        answer = connection.receive()
    if answer is None:
        raise connection.lost()
    if not isinstance(answer, (Attached, Declined)):
        raise PenstockError(f"The daemon at {connection.address} answered with {type(answer).__name__}.")
    return answer


def _is_own(name: str, value: Any) -> bool:
    """Whether an option concerns this client alone, such as a run to replay."""
    return name in _OWN or (isinstance(value, SpeculativeConfig) and value.method == "replay")


def _absolute(name: str) -> str:
    path = Path(os.path.expanduser(name))
    return str(path.resolve()) if os.path.exists(path) else name
