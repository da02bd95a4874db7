"""A request's body: read within bounds of size and time, and turned into its struct, or refused with a sentence.

Knows nothing of what the fields mean.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

import msgspec

from .errors import ApiError
from .options import HttpOptions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Body = TypeVar("Body", bound=msgspec.Struct)

# Of values without a form of their own (schemas, template arguments); what goes down them does so by recursion.
MOST_LEVELS = 64
# A value takes hundreds of times its bytes to decode (an empty object a microsecond), and nothing else runs meanwhile.
MOST_CONTAINERS, MOST_STRINGS, MOST_NUMBERS = 2**16, 2**16, 2**20
# Bodies of the greatest size that may be on their way at once.
MOST_HELD = 32
# From here on it is decoded in a thread: other streams go on meanwhile.
LONG_BYTES = 2**15


class Gone(Exception):
    """The client has closed the connection: nobody is there to be answered."""


class BodyReader:
    """For all connections: what they hold together has a bound, too."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._held_bytes = 0
        # Long bodies one after another: however many come, the event loop waits for one of them only.
        self._decoding = asyncio.Lock()

    async def read(self, scope: Scope, receive: Receive, kind: type[Body]) -> tuple[Body, int]:
        """The struct, and of how many bytes it was made."""
        self._check_headers(scope)
        body = bytearray()
        try:
            async with asyncio.timeout(self._options.body_timeout):
                await self._fill(body, receive)
            if len(body) < LONG_BYTES:
                return decoded(body, kind), len(body)
            async with self._decoding:
                return await asyncio.to_thread(decoded, body, kind), len(body)
        except TimeoutError:
            raise ApiError(408, f"The body was not complete within {self._options.body_timeout:g} s.") from None
        finally:
            self._held_bytes -= len(body)

    def _check_headers(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise ApiError(415, "Compressed bodies are not taken; send the JSON as it is.")
        if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
            raise ApiError(415, "The body must be JSON, with the header Content-Type: application/json.")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._options.max_body_bytes:
            raise self._too_large()

    async def _fill(self, body: bytearray, receive: Receive) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            piece = message.get("body", b"")
            body += piece
            self._held_bytes += len(piece)
            if len(body) > self._options.max_body_bytes:
                raise self._too_large()
            if self._held_bytes > MOST_HELD * self._options.max_body_bytes:
                raise ApiError(429, "Too many long requests arrive at once. Ask again later.", retry_after=1)
            more = message.get("more_body", False)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"The body has more than {self._options.max_body_bytes:,} bytes (option max_body_bytes).")


def decoded(body: bytes | bytearray, kind: type[Body]) -> Body:
    check_values(body)
    try:
        request = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        sentence, _, place = str(error).partition(" - at `$")
        raise ApiError(400, str(error), param=place.strip("`.") or None if sentence else None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"The body is not JSON that can be read: {error}.") from None
    for name in kind.__struct_fields__:
        if isinstance(value := getattr(request, name), (dict, list)):
            check_levels(name, value)
    return request


def check_values(body: bytes | bytearray) -> None:
    """By the marks that stand around values. Those inside of texts are told apart only where all together are many."""
    if not _holds_many(body):
        return
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if unescaped.count(b'"') > 2 * MOST_STRINGS or _holds_many(b"".join(unescaped.split(b'"')[::2])):
        raise ApiError(
            413,
            f"The body holds more than {MOST_CONTAINERS:,} lists and objects, {MOST_STRINGS:,} texts or "
            f"{MOST_NUMBERS:,} numbers; send less at once.",
        )


def _holds_many(body: bytes | bytearray) -> bool:
    return (
        body.count(b"{") + body.count(b"[") > MOST_CONTAINERS
        or body.count(b'"') > 2 * MOST_STRINGS
        or body.count(b",") > MOST_NUMBERS
    )


def check_levels(name: str, value: Any) -> None:
    """Level by level: a nesting as deep as a client can write overflows whatever goes down it by recursion."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [part for each in level for part in _parts(each) if isinstance(part, (dict, list, msgspec.Struct))]
        if not level:
            return
    raise ApiError(400, f"{name}: it is nested more than {MOST_LEVELS} levels deep.", param=name)


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    return value if isinstance(value, list) else ()
