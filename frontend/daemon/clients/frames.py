"""Reads a client's messages in pieces, and charges each piece to the client's budget before it is kept.

A message that is only announced therefore takes no memory, and the client of a long one waits until there is room. A
client that says nothing before it has attached, or stops in the middle of a message, is disconnected.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ....protocol.attach import (
    HEADER_BYTES,
    LONGEST_FIRST_FRAME,
    LONGEST_FRAME,
    LONGEST_OTHER_FRAME,
    ToDaemon,
    frame_length,
)
from ....protocol.errors import PenstockError
from .client_budget import ClientBudget

# A client that has not attached, and waits for no answer, must send something within the first of these times; a
# message must be complete within the second.
ATTACH_SECONDS = 10.0
_MESSAGE_SECONDS = 30.0
_PIECE = 64 << 10
_decoder = msgspec.msgpack.Decoder(ToDaemon)
_LONG = (b"Ask", b"AskRender")


class Frame(NamedTuple):
    message: Any
    num_bytes: int  # charged for it; given back by whoever handles it


class Frames:
    def __init__(self, reader: asyncio.StreamReader, budget: ClientBudget, may_be_silent: Callable[[], bool]) -> None:
        """`may_be_silent` tells whether the client has attached, or we owe it an answer."""
        self._reader = reader
        self._budget = budget
        self._may_be_silent = may_be_silent
        self._is_first = True

    async def next(self) -> Frame:
        """The next message. Raises if the connection ends, or if no honest client would send such a message."""
        header = await self._header()
        longest = LONGEST_FIRST_FRAME if self._is_first else LONGEST_FRAME
        length = frame_length(header, min(longest, self._budget.longest))
        body = await self._body(length)
        if length > LONGEST_OTHER_FRAME and _tag(body) not in _LONG:
            raise PenstockError(f"A message of {length:,} bytes came, and {LONGEST_OTHER_FRAME:,} are its most.")
        message = _decoder.decode(body)
        self._is_first = False
        return Frame(message, length)

    async def _header(self) -> bytes:
        while True:
            try:
                async with asyncio.timeout(ATTACH_SECONDS):
                    return await self._reader.readexactly(HEADER_BYTES)
            except TimeoutError:
                if not self._may_be_silent():
                    raise PenstockError(f"Nothing was said for {ATTACH_SECONDS:.0f} s: attach to a model.") from None

    async def _body(self, length: int) -> bytearray:
        body = bytearray()
        seconds = _MESSAGE_SECONDS
        while len(body) < length:
            start = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(seconds):
                    piece = await self._reader.read(min(_PIECE, length - len(body)))
            except TimeoutError:
                raise PenstockError(f"A message did not come within {_MESSAGE_SECONDS:.0f} s.") from None
            if not piece:
                raise asyncio.IncompleteReadError(bytes(body), length)
            seconds -= asyncio.get_running_loop().time() - start  # time that the client waits for us doesn't count
            await self._budget.take_ahead(len(piece))
            body += piece
        return body


def _tag(body: bytearray) -> bytes:
    """The name of a message: it follows one byte for the array and one for the name's own length."""
    return bytes(body[2 : 2 + (body[1] & 0x1F)])
