"""Admits a request only if its Host header names this server and, if keys are used, its API key is valid.

The guard comes before everything else. The Host check stops DNS rebinding, where a foreign site points its own name at
this machine. Keys are compared in a time that doesn't depend on how much of them is right.
"""

import hashlib
import hmac
import re
import socket

from ..answers.error_forms import error_form
from ..answers.errors import ApiError
from ..answers.reply import send_error
from ..options import HttpOptions, is_address
from .body import Receive, Scope, Send, only_header

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/\s]+))(?::[0-9]{1,5})?")
# Paths that reveal nothing about models or requests: the page itself, and whether the server is alive.
WITHOUT_KEY = frozenset({"/", "/health", "/ready", "/ping", "/openapi.json"})


class Guard:
    """An ASGI application that wraps another one."""

    def __init__(self, inner: "object", options: HttpOptions) -> None:
        self._inner = inner
        self._hosts = {"localhost", socket.gethostname().lower(), *(name.lower() for name in options.allowed_hosts)}
        if not is_address(options.address[0]):
            self._hosts.add(options.address[0].lower())
        # Of equal length, so that not even the length of a key can be measured.
        self._keys = [_digest(key) for key in options.api_keys()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close"})  # refuses the upgrade
            return
        try:
            self._check_host(only_header(scope, b"host"))
            scope["state"]["salt"] = self._salt(scope["path"], _key(scope))
        except ApiError as error:
            await send_error(send, error, error_form(scope["path"], scope["headers"]))
            return
        await self._inner(scope, receive, send)  # type: ignore[operator]

    def _check_host(self, host: bytes | None) -> None:
        name = _host_name((host or b"").decode("latin-1")).lower()
        if name not in self._hosts and not is_address(name):
            raise ApiError(403, "The Host header names another server. Names of this one: --allowed-hosts NAME.")

    def _salt(self, path: str, key: bytes) -> str | None:
        """The salt that separates one key's cached prefixes from another's; None without keys."""
        if not self._keys or path in WITHOUT_KEY:
            return None
        given = _digest(key)
        # Compare all keys, even after a match, so that the time doesn't reveal which one matched.
        known = [hmac.compare_digest(given, each) for each in self._keys]
        if not any(known):
            sentence = "A known API key is needed: Authorization: Bearer KEY, or x-api-key: KEY."
            raise ApiError(401, sentence, code="invalid_api_key")
        return _salt_of(given)


def _key(scope: Scope) -> bytes:
    """The key that a request brings, in OpenAI's header or, without that, in Anthropic's; empty if there is none."""
    authorization, key = only_header(scope, b"authorization"), only_header(scope, b"x-api-key")
    if authorization is None:
        return (key or b"").strip()
    scheme, _, key = authorization.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def owners(options: HttpOptions) -> set[str]:
    """The owners whose requests are admitted: a salt for each API key, or nobody in particular."""
    return {_salt_of(_digest(key)) for key in options.api_keys()} or {""}


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _salt_of(digest: bytes) -> str:
    return hashlib.blake2b(digest, digest_size=16, person=b"cache salt").hexdigest()


def _host_name(host: str) -> str:
    """The name without its port; empty if it isn't a name with or without a port."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]) if found else ""
