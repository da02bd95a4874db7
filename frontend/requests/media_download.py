"""Downloads a picture or video in the caller's own process, with limits on bytes, time and redirects."""

import socket
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from ...protocol.errors import LimitError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.media import MediumKind

_MOST_SECONDS = 60.0
_SILENCE = 10.0  # seconds without a byte
_MOST_REDIRECTS = 3
_PIECE = 1 << 16


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _MOST_REDIRECTS
    max_repeats = 2


def downloaded(kind: MediumKind, url: str, most_bytes: int, most_seconds: float = _MOST_SECONDS) -> bytes:
    """The content at an http: or https: URL."""
    deadline = time.monotonic() + most_seconds
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "penstock", "Accept": f"{kind}/*, */*;q=0.1"})
        with _opener().open(request, timeout=min(_SILENCE, most_seconds)) as answer:
            return _read(kind, url, answer, most_bytes, deadline, most_seconds)
    except urllib.error.HTTPError as error:
        reason = f"the server answers {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        slow = isinstance(cause, (TimeoutError, socket.timeout))
        reason = f"nothing comes for {_SILENCE:g} s" if slow else str(cause) or type(error).__name__
    raise RequestError(f"The {kind} {shown(url)} can't be downloaded: {reason}.")


def _opener() -> urllib.request.OpenerDirector:
    """Knows http and https and nothing else, wherever a redirect leads."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _read(kind: MediumKind, url: str, answer: Any, most: int, deadline: float, seconds: float) -> bytes:
    content = bytearray()
    while piece := answer.read1(_PIECE):
        content += piece
        if len(content) > most:
            raise LimitError(f"The {kind} {shown(url)} has more than {most >> 20} MiB.")
        if time.monotonic() > deadline:
            raise LimitError(f"The {kind} {shown(url)} takes more than {seconds:g} s to download.")
    return bytes(content)
