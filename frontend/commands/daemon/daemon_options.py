"""The command-line options that `penstock serve` and `penstock start` share."""

import argparse
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.options.config import EngineConfig
from ...console.command_line import RareHelp
from ...daemon.settings import DaemonSettings, read_settings
from ...http.options import DEFAULT_ADDRESS, HttpOptions
from ..shared.options import add_options, add_socket, add_verbose, given, number_or_text

_USUAL = ("keep_alive", "max_loaded", "drain")  # shown by `--help`
# The daemon's own options: name → description.
_OWN = {
    "keep_alive": "unload a model after this many idle seconds; inf: never (600)",
    "load_wait": "seconds that a load waits for memory in use (30)",
    "max_loaded": "maximum loaded models; default: what fits in memory",
    "drain": "seconds for running requests to finish at shutdown (30)",
    "linger": "stop after this many seconds without clients and models (never)",
    "max_held_bytes": 'memory held for all clients: bytes, or "1GiB" (a sixteenth of the memory, at most 1 GiB)',
    "max_client_bytes": "memory held for one client (a quarter of that, at least 64 MiB)",
}


def add_daemon_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help="bundled name, folder or hub id; or NAME=MODEL")
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with the models and their options")
    add_socket(parser)
    add_verbose(parser)
    group = parser.add_argument_group("daemon options")
    for name, sentence in _OWN.items():
        flag = "--" + name.replace("_", "-")
        words = sentence if name in _USUAL else RareHelp(sentence)
        group.add_argument(flag, dest=name, type=number_or_text, metavar="X", help=words, default=argparse.SUPPRESS)
    group.add_argument("--preload", action="store_true", default=True, help="load the given models at the start (on)")
    group.add_argument("--lazy", dest="preload", action="store_false", help="load models on first use")
    group.add_argument("--no-http", action="store_true", help="don't serve HTTP")
    group.add_argument("--systemd", action="store_true", help="print a systemd unit for this command line and exit")
    add_options(parser, "HTTP options", HttpOptions)
    halves = parser.add_argument_group("host and port of --http")
    halves.add_argument("--host", metavar="HOST", help="host to listen on (127.0.0.1)")
    halves.add_argument("--port", metavar="PORT", help="port to listen on (8000)")
    add_options(parser, "engine options of the given models", EngineConfig, leave_out=("model", "connect"))


def _address(arguments: argparse.Namespace) -> dict[str, str]:
    if arguments.host is None and arguments.port is None:
        return {}
    if hasattr(arguments, "http"):
        raise ConfigError("--http says where to listen, and so do --host and --port: give one or the other.")
    host, port = DEFAULT_ADDRESS.split(":")
    return {"http": f"{arguments.host or host}:{arguments.port or port}"}


def settings_of(arguments: argparse.Namespace) -> DaemonSettings:
    """The daemon's settings; called again at every reload. Raises if they cannot work."""
    options: dict[str, Any] = given(arguments, EngineConfig)
    options.pop("connect", None)
    own = {name: getattr(arguments, name) for name in _OWN if hasattr(arguments, name)}
    options["preload"] = arguments.preload
    http = None if arguments.no_http else given(arguments, HttpOptions) | _address(arguments)
    return read_settings(arguments.config, arguments.models, options, own, http)
