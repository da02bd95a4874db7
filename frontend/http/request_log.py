"""A line for each request, once it is answered: what was asked of which model, how it ended, and how much it took.

Around everything else, so that refusals are told, too. Of what clients write the line holds the method and the path
alone, cut, and with everything escaped that could look like a line of its own; never a prompt, an answer or a key.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .body import Receive, Scope, Send

if TYPE_CHECKING:
    from .generation import Tally

_NOTE = "note"  # where it lies in a request's state
_LONGEST_METHOD, _LONGEST_PATH = 16, 200
_GONE = 499  # the client left before it had an answer
# Asked again and again by whoever watches a server, such as the open page: what went well there would fill the log.
_WATCHED = {"/health", "/ping", "/metrics", "/v1/requests"}


@dataclass(slots=True)
class Note:
    """What those who answer a request know of it."""

    model: str = ""  # by its own name, not as the client wrote it
    tally: "Tally | None" = None
    status: int = 0  # where it ended otherwise than its first line said


def note_of(scope: Scope) -> Note:
    note: Note = scope["state"].setdefault(_NOTE, Note())
    return note


class RequestLog:
    """An ASGI application around another one."""

    def __init__(self, inner: Any, say: Callable[[str], None]) -> None:
        self._inner = inner
        self._say = say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, told = time.perf_counter(), _GONE

        async def noted(message: Any) -> None:
            nonlocal told
            if message["type"] == "http.response.start":
                told = message["status"]
            await send(message)

        try:
            await self._inner(scope, receive, noted)
        finally:
            note = note_of(scope)
            status = note.status or told
            if status != 200 or scope["path"] not in _WATCHED:
                self._say(line_of(scope, note, status, time.perf_counter() - begun))


def line_of(scope: Scope, note: Note, status: int, seconds: float) -> str:
    method = _escaped(scope["method"], _LONGEST_METHOD)
    path = _escaped((scope.get("raw_path") or scope["path"].encode()).decode("latin-1"), _LONGEST_PATH)
    words = [method, path, str(status)]
    if note.model:
        words.append(f"model={_escaped(note.model, _LONGEST_PATH)}")
    if note.tally is not None:
        words.append(f"in={note.tally.prompt_tokens} out={note.tally.completion_tokens}")
    return " ".join([*words, f"{seconds:.3f} s"])


def _escaped(text: str, most: int) -> str:
    """In one word, other characters than those of ASCII as Python writes them."""
    word = text[:most].encode("unicode_escape").decode("ascii").replace(" ", "\\x20")
    return f"{word}…" if len(text) > most else word
