"""The HTTP server's options: its address, who may connect, and its limits.

They are one frozen struct, checked when it is made.
"""

import ipaddress
import os
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.fields.described import described, rules_of
from ...protocol.fields.rules import Rule, shown
from ...protocol.files.owner_file import read_owner_file

DEFAULT_ADDRESS = "127.0.0.1:8000"
_LAST_PORT = 65535


def _rule(holds: Callable[[Any], bool], sentence: str) -> Rule:
    return Rule(lambda value: value, holds, sentence)


_COUNT = _rule(lambda value: type(value) is int and value >= 1, "must be a whole number, 1 or more")
_AMOUNT = _rule(lambda value: type(value) is int and value >= 0, "must be a whole number, 0 or more")
_SECONDS = _rule(lambda value: type(value) in (int, float) and 0 < value < 1e9, "must be a number of seconds above 0")
_PATH = _rule(lambda value: value != "", "must be a path")
_LOGGED = _rule(lambda value: value in ("auto", "on", "off"), "must be auto, on or off")


class HttpOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Options of the server, whose default limits suit a single machine."""

    http: Annotated[str, described("address to listen on: HOST:PORT, or PORT on 127.0.0.1")] = DEFAULT_ADDRESS
    api_key_file: Annotated[str | None, described("file of API keys, one per line")] = None
    tls_certificate: Annotated[str | None, described("PEM file with the certificate and its chain")] = None
    tls_key: Annotated[str | None, described("PEM file with the certificate's private key")] = None
    allowed_hosts: Annotated[list[str], described("host names to accept in the Host header")] = []
    http_added: Annotated[bool, described("also serve models and adapters that scripts added")] = False
    trust_request_chat_template: Annotated[bool, described("accept chat templates in requests")] = False
    allow_priority: Annotated[bool, described("accept priorities in requests")] = False
    log_requests: Annotated[str, described("log each request: on, off, or auto (in the foreground)", _LOGGED)] = "auto"
    max_body_bytes: Annotated[int, described("maximum bytes of a request's body", _COUNT)] = 8 * 2**20
    files_folder: Annotated[str | None, described("folder for uploaded files and batches", _PATH)] = None
    max_file_bytes: Annotated[int, described("maximum bytes of an uploaded file", _COUNT)] = 512 * 2**20
    max_stored_bytes: Annotated[int, described("maximum bytes of one API key's files", _COUNT)] = 4 * 2**30
    max_batch_lines: Annotated[int, described("maximum requests of a batch", _COUNT)] = 50_000
    max_header_bytes: Annotated[int, described("maximum bytes of a request's line and headers", _COUNT)] = 32 * 2**10
    max_connections: Annotated[int, described("maximum open connections; idle ones are closed first", _COUNT)] = 1024
    max_requests: Annotated[int, described("maximum running answers; one API key gets up to ¾", _COUNT)] = 256
    max_queue: Annotated[int, described("maximum requests that wait to run", _AMOUNT)] = 1024
    max_outputs: Annotated[int, described("maximum answers per request: prompts times n", _COUNT)] = 256
    max_texts: Annotated[int, described("maximum texts per request for vectors, scores or classes", _COUNT)] = 2048
    header_timeout: Annotated[float, described("seconds for a request's headers to arrive", _SECONDS)] = 10.0
    body_timeout: Annotated[float, described("seconds for a request's body to arrive", _SECONDS)] = 30.0
    idle_timeout: Annotated[float, described("seconds to keep an idle connection open", _SECONDS)] = 30.0
    stall_timeout: Annotated[float, described("seconds that a client may stop reading", _SECONDS)] = 30.0
    request_timeout: Annotated[float, described("maximum seconds per answer", _SECONDS)] = 3600.0

    def __post_init__(self) -> None:
        self.address  # noqa: B018 - raises for one that can't be
        for name, rule in _RULES.items():
            if not rule.holds(value := getattr(self, name)):
                raise ConfigError(f"{name}={value!r} {rule.sentence}.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigError("tls_certificate and tls_key belong together: give both or none.")

    @property
    def address(self) -> tuple[str, int]:
        if "://" in self.http:
            raise self._unusable("the scheme is left out; with tls_certificate and tls_key it is https")
        host, colon, port = self.http.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if colon and not host:
            raise self._unusable("HOST is missing; 0.0.0.0 is every IPv4 address of this machine")
        if ":" in host and not is_address(host):
            raise self._unusable(f"{shown(host)} is no address")
        if not (port.isascii() and port.isdecimal()):
            raise self._unusable(f"{shown(port)} is no port")
        if len(port) > 5 or int(port) > _LAST_PORT:
            raise self._unusable(f"ports end at {_LAST_PORT}; 0 is any that is free")
        return host or "127.0.0.1", int(port)

    def _unusable(self, why: str) -> ConfigError:
        words = f"must be HOST:PORT such as {DEFAULT_ADDRESS}, or a port"
        return ConfigError(f"http={shown(self.http)} {words}: {why}.")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        host = self.address[0]
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def api_keys(self) -> list[bytes]:
        """The keys; empty if no file was given: then everyone who can connect may send requests."""
        return [] if self.api_key_file is None else [key.encode() for key in read_api_keys(self.api_key_file)]


def read_api_keys(file: str) -> list[str]:
    """The keys in a file, one a line; at least one."""
    try:
        # Editors on Windows begin a file with a byte order mark.
        lines = read_owner_file(os.path.expanduser(file)).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"api_key_file={file!r} can't be read: {error}.") from error
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise ConfigError(f"api_key_file={file!r} holds no key; write one a line.")
    return keys


_RULES = rules_of(HttpOptions)


def is_address(name: str) -> bool:
    """Whether it is an IP address, which can't be redirected like a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
