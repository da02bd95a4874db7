"""Logs a line for each answered request: its path, model and status, its tokens, and the time it took.

It wraps everything else, so that refusals are logged, too. Of a client's input, only the method and the path are
logged, cut and escaped so that they can't forge a line; never a prompt, an answer or a key.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ....protocol.errors import PenstockError
from ..requests.body import Receive, Scope, Send

if TYPE_CHECKING:
    from ..loaded_model import SubmittedPrompt

_LOG_ENTRY = "log_entry"  # its key in a request's state
_LONGEST_METHOD, _LONGEST_PATH = 16, 200
_CLIENT_LEFT = 499  # the client disconnected before it had an answer
# How long an engine may take to count the tokens of a stopped request.
_COUNT_SECONDS = 1.0
# Paths that monitors and the open page request repeatedly; their successes would fill the log.
_WATCHED = {"/health", "/ready", "/ping", "/metrics", "/load", "/v1/load", "/v1/loads", "/v1/requests"}


@dataclass(slots=True)
class LogEntry:
    """The contents of a request's log line, filled in while the request is answered."""

    model: str = ""  # its own name, not the client's spelling
    status: int = 0  # set if the request's outcome differs from its status line
    prompts: "Sequence[SubmittedPrompt]" = ()  # submitted to an engine


def log_entry_of(scope: Scope) -> LogEntry:
    entry: LogEntry = scope["state"].setdefault(_LOG_ENTRY, LogEntry())
    return entry


class RequestLog:
    """An ASGI application that wraps another one."""

    def __init__(self, inner: Any, say: Callable[[str], None]) -> None:
        self._inner = inner
        self._say = say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, sent_status = time.perf_counter(), _CLIENT_LEFT

        async def noted(message: Any) -> None:
            nonlocal sent_status
            if message["type"] == "http.response.start":
                sent_status = message["status"]
            await send(message)

        try:
            await self._inner(scope, receive, noted)
        finally:
            entry, seconds = log_entry_of(scope), time.perf_counter() - begun
            status = entry.status or sent_status
            if status != 200 or scope["path"] not in _WATCHED:
                self._say(line_of(scope, entry.model, await _counted(entry), status, seconds))


class Counts(NamedTuple):
    """Tokens of a request: its prompts', and all generated ones, sent or not."""

    prompt_tokens: int
    generated_tokens: int


async def _counted(entry: LogEntry) -> Counts | None:
    """The request's tokens; None if nothing was submitted to an engine."""
    prompt_tokens = sum(len(each.request.prompt.token_ids) // 4 for each in entry.prompts)
    counted = [(each.request.num_generated_each, each.last_stats) for each in entry.prompts]
    entry.prompts = ()  # free their memory: it isn't charged to anybody any more
    if not counted:
        return None
    generated_tokens = sum(sum(arrived) for arrived, _ in counted)
    with suppress(PenstockError, TimeoutError):
        async with asyncio.timeout(_COUNT_SECONDS):
            for arrived, asked in counted:
                if asked is not None:
                    last = (await asyncio.wrap_future(asked)).generated
                    generated_tokens += sum(max(0, more) for more in map(int.__sub__, last, arrived))
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
    """The text without spaces, and with characters outside of ASCII as Python escapes."""
    word = text[:most].encode("unicode_escape").decode("ascii").replace(" ", "\\x20")
    return f"{word}…" if len(text) > most else word
