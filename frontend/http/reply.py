"""Ways to answer: one JSON body, an error, or a stream of events. Knows nothing of what they say."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .body import Send
from .errors import ApiError

_SAFE = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


@dataclass(frozen=True, slots=True)
class Reply:
    body: bytes
    media_type: bytes = b"application/json"
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    @classmethod
    def of(cls, body: msgspec.Struct) -> "Reply":
        return cls(msgspec.json.encode(body))


@dataclass(frozen=True, slots=True)
class Events:
    """Pieces of a stream, ready to be sent; how it tells an error, and how it ends."""

    pieces: AsyncIterator[bytes]
    failed: Callable[[ApiError], bytes] = lambda error: b"data: " + error.body + b"\n\n"
    ending: bytes = b"data: [DONE]\n\n"


def in_turns(parts: Iterable[msgspec.Struct]) -> list[Any]:
    """Encoded one by one, for a body that holds them: nothing else runs while one thing is encoded."""
    return [msgspec.Raw(msgspec.json.encode(part)) for part in parts]


def event(body: msgspec.Struct | dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def send_reply(send: Send, reply: Reply) -> None:
    length = str(len(reply.body)).encode()
    headers = [(b"content-type", reply.media_type), (b"content-length", length), *_SAFE, *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def send_error(send: Send, error: ApiError) -> None:
    """The connection ends with it where the request's own body may still be on its way."""
    closing = [(b"connection", b"close")] if error.status in (408, 413, 415) else []
    await send_reply(send, Reply(error.body, status=error.status, headers=error.headers + closing))


async def start_events(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"), *_SAFE]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
