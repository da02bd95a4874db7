"""Admits a request only if its Host header names this server and, if keys are used, its API key is valid.

The guard comes before everything else. The Host check stops DNS rebinding, where a foreign site points its own name at
this machine. Keys are compared in a time that doesn't depend on how much of them is right.
"""

import hashlib
import hmac
import ipaddress
import re
import socket

from ..answers.errors import ApiError
from ..answers.reply import send_error
from ..options import HttpOptions
from .body import Receive, Scope, Send

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/\s]+))(?::[0-9]{1,5})?")
# Paths that reveal nothing about models or requests: the page itself, and whether the server is alive.
WITHOUT_KEY = frozenset({"/", "/health", "/ping", "/openapi.json"})


class Guard:
    """An ASGI application that wraps another one."""

    def __init__(self, inner: "object", options: HttpOptions) -> None:
        self._inner = inner
        self._hosts = {"localhost", socket.gethostname().lower(), *(name.lower() for name in options.allowed_hosts)}
        if not _is_address(options.address[0]):
            self._hosts.add(options.address[0].lower())
        # Of equal length, so that not even the length of a key can be measured.
        self._keys = [hashlib.sha256(key).digest() for key in options.api_keys()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            headers = _UniqueHeaders(scope["headers"])
            self._check_host(headers.only(b"host"))
            scope["state"]["salt"] = self._salt(scope["path"], headers.only(b"authorization"))
        except ApiError as error:
            await send_error(send, error)
            return
        await self._inner(scope, receive, send)  # type: ignore[operator]

    def _check_host(self, host: bytes | None) -> None:
        name = _host_name((host or b"").decode("latin-1")).lower()
        if name not in self._hosts and not _is_address(name):
            raise ApiError(403, "The Host header names another server. Names of this one: --allowed-hosts NAME.")

    def _salt(self, path: str, authorization: bytes | None) -> str | None:
        """The salt that separates one key's cached prefixes from another's; None without keys."""
        if not self._keys or path in WITHOUT_KEY:
            return None
        scheme, _, key = (authorization or b"").partition(b" ")
        given = hashlib.sha256(key.strip()).digest()
        # Compare all keys, even after a match, so that the time doesn't reveal which one matched.
        known = [hmac.compare_digest(given, each) for each in self._keys]
        if scheme.lower() != b"bearer" or not any(known):
            raise ApiError(401, "A known API key is needed: Authorization: Bearer KEY.", code="invalid_api_key")
        return hashlib.blake2b(given, digest_size=16, person=b"cache salt").hexdigest()


class _UniqueHeaders:
    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._headers = headers

    def only(self, name: bytes) -> bytes | None:
        """A header that may occur once: different parsers would interpret two of them differently."""
        found = [value for each, value in self._headers if each == name]
        if len(found) > 1:
            raise ApiError(400, f"There is more than one {name.decode().title()} header.")
        return found[0] if found else None


def _host_name(host: str) -> str:
    """The name without its port; empty if it isn't a name with or without a port."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]) if found else ""


def _is_address(name: str) -> bool:
    """Whether it is an IP address, which can't be redirected like a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
