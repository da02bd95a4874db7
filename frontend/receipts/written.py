"""How receipts of all kinds are written: packed, with a checksum, as ASCII without spaces or quotes.

The checksum only finds damage: whoever changes a receipt can make another one.
"""

import base64
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from ...protocol.errors import RequestError
from ...protocol.files.formats import RECEIPT
from ...protocol.wire import column, values

_Packed = TypeVar("_Packed", bound=msgspec.Struct)
_Params = TypeVar("_Params", bound=msgspec.Struct)

DAMAGED = "its receipt is damaged"
LONG_ARRAY = b"\xdd"  # begins one of more than 65,535 elements
MOST_BYTES = 16 << 20  # unpacked
MOST_BESIDE_IDS = 1 << 20  # of these, so that a few bytes don't become millions of objects
_SUM_BYTES = 8


def as_text(prefix: str, receipt: msgspec.Struct) -> str:
    """Pack a receipt of any kind into one string."""
    packed = zlib.compress(msgspec.msgpack.encode(receipt), 9)
    return prefix + base64.urlsafe_b64encode(_sum(packed) + packed).decode().rstrip("=")


def packed_in(prefix: str, text: str) -> bytes:
    """Take the packed receipt out of its string; raises `RequestError` unless it is whole."""
    body = text.strip().removeprefix(prefix)
    if body == text.strip():
        if other := re.match(rf"{prefix[:2]}(\d{{1,9}})_", body, re.ASCII):
            raise RequestError(RECEIPT.refusal(other[1]))
        raise RequestError(f"{DAMAGED}: it doesn't begin with {prefix}")
    try:
        found = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise RequestError(f"{DAMAGED}: {error}") from error
    packed = found[_SUM_BYTES:]
    if found[:_SUM_BYTES] != _sum(packed):
        raise RequestError(f"{DAMAGED}: its checksum is another")
    return packed


def unpacked_as(
    kind: type[_Packed], packed: bytes, unpacker: "zlib._Decompress", beside_ids: Callable[[bytes], int]
) -> _Packed:
    """Unpack a receipt of this kind. `beside_ids` counts its bytes but those of ids, without making objects of them.

    Raises `RequestError` unless a whole receipt was packed, in the one way in which it is written.
    """
    try:
        unpacked = unpacker.decompress(packed, MOST_BYTES)
        if not unpacker.eof or unpacker.unused_data or beside_ids(unpacked) > MOST_BESIDE_IDS:
            raise RequestError(f"{DAMAGED}: it is too long")
        receipt = msgspec.msgpack.decode(unpacked, type=kind)
        if msgspec.msgpack.encode(receipt) != unpacked:
            raise RequestError(f"{DAMAGED}: it is written in another way")
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError) as error:
        raise RequestError(f"{DAMAGED}: {error}") from error
    return receipt


def id_bytes(elements: msgspec.Raw, kind: str) -> int:
    """Count the bytes of the ids that the elements of an array begin with; refuses an array of very many."""
    if bytes(elements)[:1] == LONG_ARRAY:
        raise RequestError(f"{DAMAGED}: it has too many {kind}")
    return sum(len(element.ids) for element in msgspec.msgpack.decode(elements, type=list[_BeginsWithIds]))


class _BeginsWithIds(msgspec.Struct, array_like=True):
    ids: msgspec.Raw


def converted(given: Mapping[str, Any], kind: type[_Params], *, strict: bool = True) -> _Params:
    """Make parameters of a receipt's; raises `RequestError` if they are invalid."""
    try:
        return msgspec.convert(given, kind, strict=strict)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{DAMAGED}: {error}") from error


def packed_ids(ids: Sequence[int]) -> bytes:
    """Ids byte by byte: first all lowest bytes, at last all highest, which are mostly 0 and take no room compressed."""
    return planes(column(ids))


def planes(packed: bytes) -> bytes:
    return b"".join([packed[place::4] for place in range(4)])


def unpacked_ids(planes: bytes) -> list[int]:
    packed, count = bytearray(len(planes)), len(planes) // 4
    for place in range(4):
        packed[place::4] = planes[place * count : (place + 1) * count]
    return values(bytes(packed)).tolist()


def _sum(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_SUM_BYTES, person=b"penstock receipt").digest()
