"""A line for each request, once it is answered: what was asked of which model, how it ended, and how much it took.

Around everything else, so that refusals are told, too. Of what clients write the line holds the method and the path
alone, cut, and with everything escaped that could look like a line of its own; never a prompt, an answer or a key.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...protocol.errors import PenstockError
from .body import Receive, Scope, Send

if TYPE_CHECKING:
    from .models import Submitted

_NOTE = "note"  # where it lies in a request's state
_LONGEST_METHOD, _LONGEST_PATH = 16, 200
_GONE = 499  # the client left before it had an answer
# How long an engine has to say how far a request was that was stopped.
_COUNT_SECONDS = 1.0
# Asked again and again by whoever watches a server, such as the open page: what went well there would fill the log.
_WATCHED = {"/health", "/ping", "/metrics", "/v1/requests"}


@dataclass(slots=True)
class Note:
    """What those who answer a request know of it."""

    model: str = ""  # by its own name, not as the client wrote it
    status: int = 0  # where it ended otherwise than its first line said
    prompts: "Sequence[Submitted]" = ()  # that have gone to an engine


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
            note, seconds = note_of(scope), time.perf_counter() - begun
            status = note.status or told
            if status != 200 or scope["path"] not in _WATCHED:
                self._say(line_of(scope, note.model, await _counted(note), status, seconds))


class Counts(NamedTuple):
    """Tokens of a request: of its prompts, and of all that was made of them, told or not."""

    prompt_tokens: int
    generated_tokens: int


async def _counted(note: Note) -> Counts | None:
    """None where no engine was asked anything."""
    requests = [each.request for each in note.prompts]
    last_stats = [each.last_stats for each in note.prompts if each.last_stats is not None]
    note.prompts = ()  # what they hold is charged to nobody any more
    if not requests:
        return None
    prompt_tokens = sum(len(request.prompt.token_ids) // 4 for request in requests)
    generated_tokens = sum(request.num_generated for request in requests)
    del requests
    with suppress(PenstockError, TimeoutError):
        async with asyncio.timeout(_COUNT_SECONDS):
            for asked in last_stats:
                generated_tokens += sum((await asyncio.wrap_future(asked)).generated)
    return Counts(prompt_tokens, generated_tokens)


def line_of(scope: Scope, model: str, counts: Counts | None, status: int, seconds: float) -> str:
    method = _escaped(scope["method"], _LONGEST_METHOD)
    path = _escaped((scope.get("raw_path") or scope["path"].encode()).decode("latin-1"), _LONGEST_PATH)
    words = [method, path, str(status)]
    if model:
        words.append(f"model={_escaped(model, _LONGEST_PATH)}")
    if counts is not None:
        words.append(f"in={counts.prompt_tokens} out={counts.generated_tokens}")
    return " ".join([*words, f"{seconds:.3f} s"])


def _escaped(text: str, most: int) -> str:
    """In one word, other characters than those of ASCII as Python writes them."""
    word = text[:most].encode("unicode_escape").decode("ascii").replace(" ", "\\x20")
    return f"{word}…" if len(text) > most else word
