"""The kinds of reply: a JSON body, one that is encoded while it is sent, an error, or a stream of events."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from ..requests.body import Send
from ..schemas.messages import MessageEvent
from ..schemas.responses import ResponseEvent
from .error_forms import ANTHROPIC, OPENAI, ErrorForm
from .errors import ApiError
from .long_json import PIECE_BYTES, LongJson

NamedEvent = MessageEvent | ResponseEvent
EVENT_STREAM = b"text/event-stream; charset=utf-8"
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
class LongReply:
    """A body of unknown length; each piece is made once the client has received the previous ones."""

    pieces: Iterator[bytes]
    media_type: bytes = b"application/json"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Events:
    """The encoded pieces of a stream, the event with which it reports an error, and its last bytes."""

    pieces: AsyncIterator[bytes]
    failed: Callable[[ApiError], bytes]
    ending: bytes
    media_type: bytes = EVENT_STREAM


def whole(json: LongJson, body: msgspec.Struct) -> Reply | LongReply:
    """A reply with this body, in pieces if it has deferred lists."""
    return LongReply(json.pieces(body)) if json.is_long else Reply.of(body)


def error_event(error: ApiError) -> bytes:
    return b"data: " + error.body + b"\n\n"


def event(body: msgspec.Struct | dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def named_events(events: Iterable[NamedEvent]) -> Iterator[bytes]:
    """Encode events that have a name: short ones together, a long one by itself."""
    encoded = b""
    for each in events:
        encoded += b"event: " + each.type.encode() + b"\n" + event(each)
        if len(encoded) >= PIECE_BYTES:
            yield encoded
            encoded = b""
    if encoded:
        yield encoded


def long_event(json: LongJson, body: msgspec.Struct) -> Iterator[bytes]:
    """An event in pieces. A short one is a single piece, since some clients lose events that arrive in several."""
    pieces = json.pieces(body)
    piece = b"data: " + next(pieces)
    for following in pieces:
        yield piece
        piece = following
    yield piece + b"\n\n"


async def send_reply(send: Send, reply: Reply) -> None:
    length = str(len(reply.body)).encode()
    headers = [(b"content-type", reply.media_type), (b"content-length", length), *_SAFE, *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def send_error(send: Send, error: ApiError, form: ErrorForm = OPENAI) -> None:
    """Send an error; if the request's body may still be arriving, the connection is closed after it."""
    closing = [(b"connection", b"close")] if error.status in (408, 413, 415, 507) else []
    named = [(b"request-id", error.request_id.encode())] if form is ANTHROPIC else []
    headers = [*error.headers, *closing, *named]
    await send_reply(send, Reply(form.body(error), status=error.status, headers=headers))


async def start_long(send: Send, reply: LongReply) -> None:
    headers = [(b"content-type", reply.media_type), *_SAFE, *reply.headers]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def start_events(send: Send, reply: Events) -> None:
    headers = [(b"content-type", reply.media_type), (b"x-accel-buffering", b"no"), *_SAFE]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
