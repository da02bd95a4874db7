"""Downloads a picture or video in the caller's own process, with limits on bytes, time and redirects.

The caller's URL is trusted, even if it names this machine or its network. Servers are not: an address on the internet
can't redirect into such a network, whatever its name resolves to by then.
"""

import http.client
import ipaddress
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any

from ....protocol.errors import LimitError, RequestError
from ....protocol.fields.rules import shown
from ....protocol.media import MediumKind

_MOST_SECONDS = 60.0
_SILENCE = 10.0  # seconds without a byte
_MOST_REDIRECTS = 3
_PIECE = 1 << 16


class _RefusedRedirectError(OSError):
    pass


def downloaded(kind: MediumKind, url: str, most_bytes: int, most_seconds: float = _MOST_SECONDS) -> bytes:
    """The content at an http: or https: URL."""
    deadline = time.monotonic() + most_seconds
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "penstock", "Accept": f"{kind}/*, */*;q=0.1"})
        silence = min(_SILENCE, most_seconds)
        with _Visits().ended_after(most_seconds) as visits, _opener(visits).open(request, timeout=silence) as answer:
            content = _read(kind, url, answer, most_bytes)
        if time.monotonic() < deadline:  # otherwise it was cut off
            return content
        raise TimeoutError
    except urllib.error.HTTPError as error:
        reason = f"the server answers {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        if time.monotonic() >= deadline:
            raise LimitError(f"The {kind} {shown(url)} takes more than {most_seconds:g} s to download.") from None
        cause = getattr(error, "reason", error)
        slow = isinstance(cause, (TimeoutError, socket.timeout))
        reason = f"nothing comes for {_SILENCE:g} s" if slow else str(cause) or type(error).__name__
    raise RequestError(f"The {kind} {shown(url)} can't be downloaded: {reason}.")


class _Visits:
    """The connections of one download, one for each server in the redirects."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._has_been_outside = False

    def connection(self, *arguments: Any) -> socket.socket:
        """Like `socket.create_connection`, but checks the address that answers, not the requested name, before
        anything is sent."""
        found = socket.create_connection(*arguments)
        self._sockets.append(found.dup())  # TLS takes over the socket itself
        is_outside = _is_outside(found.getpeername()[0])
        if self._has_been_outside and not is_outside:
            found.close()
            raise _RefusedRedirectError("it leads from the internet into the network of this machine")
        self._has_been_outside |= is_outside
        return found

    @contextmanager
    def ended_after(self, seconds: float) -> "Iterator[_Visits]":
        """Close the connections after the deadline, however slowly a server goes on sending: headers have no limit
        of their own."""
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield self
        finally:
            timer.cancel()
            for connection in self._sockets:
                connection.close()

    def _end(self) -> None:
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _is_outside(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global


def _opener(visits: _Visits) -> urllib.request.OpenerDirector:
    """An opener for http and https only, wherever a redirect leads."""

    def connecting(kind: type[http.client.HTTPConnection]) -> Any:
        def made(host: str, **options: Any) -> http.client.HTTPConnection:
            connection: Any = kind(host, **options)
            connection._create_connection = visits.connection
            return connection  # type: ignore[no-any-return]

        return made

    class Plain(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> Any:
            return self.do_open(connecting(http.client.HTTPConnection), request)

    class Secured(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> Any:
            return self.do_open(connecting(http.client.HTTPSConnection), request)

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        Plain(),
        Secured(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _MOST_REDIRECTS
    max_repeats = 2


def _read(kind: MediumKind, url: str, answer: Any, most: int) -> bytes:
    content = bytearray()
    while piece := answer.read1(_PIECE):
        content += piece
        if len(content) > most:
            raise LimitError(f"The {kind} {shown(url)} has more than {most >> 20} MiB.")
    return bytes(content)
