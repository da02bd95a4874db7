"""Receives the bytes of one file from the hub and appends them to the unfinished file.

The hub's list has the file's length; of an answer's headers, only those about the requested part are read. Attempts
without progress are counted, and only a few in a row are allowed. The library handles the address and the token, which
it sends to no other host.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..model_names import HubName
from .contents import Damaged
from .repository import HubFile, NoHub, checked_answer, first_line, hub_errors, is_broken_connection

# After this many attempts in a row with fewer bytes than that, it gives up.
_TRIES, _LEAST_BYTES = 5, 16 << 10
_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 1.0, 60
# The most to request at once: no cache in front of a hub sends more than 50 GB.
_MOST_BYTES = 32 << 30
_PIECE_BYTES = 64 << 10
_PART = re.compile(r"bytes (\d{1,18})-\d{1,18}/(?:\d{1,18}|\*)")
_ENCODINGS = ("", "identity", "gzip", "deflate")
# From an overloaded hub.
_BUSY = (408, 429, 502, 503, 504)


class NoProgress(OSError):
    """Several attempts brought no more of a file; the message is a clause that says how much there is."""


class _NoPart(Exception):
    """The answer to a request for a part of the file can't be used."""


class Transfer:
    """One file being downloaded from the hub."""

    def __init__(
        self, model: HubName, commit: str, file: HubFile,
        received: Callable[[int, int], None], wait: Callable[[float], None],
    ) -> None:  # fmt: skip
        from huggingface_hub import hf_hub_url

        self._url = hf_hub_url(model.id, file.name, revision=commit)
        self._file = file
        self._received = received  # called with the bytes of an answer, and how many of them are new
        self._wait = wait
        self._takes_parts = True  # until the hub answers with another part than requested

    def run(self, descriptor: int) -> None:
        """Append to the unfinished file until it has the listed length."""
        fruitless = 0
        while (have := _size(descriptor)) < self._file.size:
            pause, why = _PAUSE_SECONDS * 2**fruitless, "the answer ended there"
            try:
                self._receive(descriptor, have)
            except _NoPart:
                self._takes_parts = False
                continue
            except (Damaged, NoHub):
                raise
            except hub_errors() as error:
                pause, why = _pause_after(error, pause), first_line(error)
            fruitless = fruitless + 1 if _size(descriptor) < min(have + _LEAST_BYTES, self._file.size) else 0
            if fruitless == _TRIES:
                came = f"{_size(descriptor):,} of the {self._file.size:,} bytes of {self._file.name}"
                raise NoProgress(f"{came} arrived, and {_TRIES} more attempts brought nothing ({why})")
            if fruitless:
                self._wait(pause)

    def refuse(self) -> None:
        """Raise the reason why a file without a listed digest can't be downloaded: it may be forbidden."""
        with checked_answer(), _answer(self._url, {}) as (response, _):
            self._start_of(response, 0, is_part=False)
        raise NoHub(f"it lists {self._file.name} without the size and the digest that tell whether it came whole")

    def _receive(self, descriptor: int, have: int) -> None:
        """Make one request and store its answer."""
        headers = {"Accept-Encoding": "identity"}  # with compression, a part of the content couldn't be requested
        is_long = self._file.size - have > _MOST_BYTES
        is_part = self._takes_parts and (have > 0 or is_long)
        if is_part:
            headers["Range"] = f"bytes={have}-{have + _MOST_BYTES - 1 if is_long else ''}"
        with checked_answer(), _answer(self._url, headers) as (response, pieces):
            offset = self._start_of(response, have, is_part)
            for piece in pieces:
                new = piece[max(0, have - offset) :]
                offset += len(piece)
                if offset > self._file.size:
                    raise Damaged(f"of {self._file.name} came more than the {self._file.size:,} bytes that it has")
                _write(descriptor, new)
                self._received(len(piece), len(new))
        if response.status_code == 200 and offset < self._file.size:
            raise Damaged(f"the hub sends {offset:,} bytes for {self._file.name}, and lists {self._file.size:,}")

    def _start_of(self, response: Any, have: int, is_part: bool) -> int:
        """Where in the file an answer begins: at the requested part, or before it, which also works."""
        status, encoding = response.status_code, response.headers.get("Content-Encoding", "").lower()
        if status == 200 and encoding in _ENCODINGS:
            return 0
        part = _PART.fullmatch(response.headers.get("Content-Range", ""))
        if status == 206 and part and int(part[1]) <= have and encoding in ("", "identity"):
            return int(part[1])
        if is_part and status in (206, 416):
            raise _NoPart
        if status >= 400:
            _refuse(response)
        raise NoHub(f"for {self._file.name} it sends an answer of status {status} {encoding}".rstrip())


def _pause_after(error: Exception, pause: float) -> float:
    """Seconds until the next attempt; raises the error if that would be of no use."""
    response = getattr(error, "response", None)
    if response is not None and response.status_code in _BUSY:
        after = response.headers.get("Retry-After", "")
        pause = float(after) if re.fullmatch(r"\d{1,9}", after) else pause
        if pause <= _MOST_PAUSE_SECONDS:
            return pause
    elif is_broken_connection(error):
        return pause
    raise error


def _refuse(response: Any) -> None:
    from huggingface_hub.utils import hf_raise_for_status

    response._content = b""  # the library would read all of it for a message that nobody sees, however long it is
    hf_raise_for_status(response)


@contextmanager
def _answer(url: str, headers: dict[str, str]) -> Iterator[tuple[Any, Iterator[bytes]]]:
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session

    # Both remove the token from a request that is redirected to another host.
    session: Any = get_session()
    headers, seconds = {**build_hf_headers(), **headers}, constants.HF_HUB_DOWNLOAD_TIMEOUT
    if callable(session.stream):
        with session.stream("GET", url, headers=headers, timeout=seconds, follow_redirects=True) as response:
            yield response, response.iter_bytes()
    else:  # the library before 1.0 has a session of requests, with a setting for it
        with session.get(url, headers=headers, timeout=seconds, stream=True) as response:
            yield response, response.iter_content(_PIECE_BYTES)


def _size(descriptor: int) -> int:
    return os.fstat(descriptor).st_size


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
