"""Unpacks the requests of one `Ask` message, each by itself, so that an error in one affects only that one.

Unpacking and rendering run in threads.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec

from ....protocol.attach import MOST_REQUESTS, PackedAsk, WireConversation, WireRequest
from ....protocol.errors import PenstockError, RequestError
from ....protocol.packed import MOST_VALUES, array_length, bytes_of_values, num_values
from ....protocol.parameters.beams import BeamSearchParams
from ....protocol.parameters.pooling import PoolingParams
from ....protocol.parameters.sampling import SamplingParams
from ....protocol.wire import values
from ...media.sources.encoded_media import unpacked_media
from ...receipts.receipt import Receipt
from ...requests.prompts import ParsedPrompt, of_receipt, parse_prompt
from ...session.private import PrivateSession
from .rendering import rendered

Value = TypeVar("Value")

# Requests that are unpacked, rendered and tokenized together.
_GROUP, _GROUP_BYTES = 64, 1 << 20
# The most values in a message, with its requests' parameters: `LLM` sends a MiB at a time.
_MOST_VALUES = 1 << 20


class _NumberOnly(msgspec.Struct, array_like=True):
    number: int


@dataclass(slots=True)
class PackedRequest:
    """A request that has arrived, still packed."""

    number: int
    packed: msgspec.Raw
    num_bytes: int = 0  # once unpacked
    refusal: str | None = None


@dataclass(slots=True)
class UnpackedRequest:
    """The content of a `PackedRequest`, or why it was refused."""

    number: int
    asked: ParsedPrompt
    conversation: WireConversation | None = None  # its prompt, until it is rendered
    is_streamed: bool = False
    num_bytes: int = 0  # of its parameters and encoded media


_number = msgspec.msgpack.Decoder(_NumberOnly)
_request = msgspec.msgpack.Decoder(WireRequest)
_params = msgspec.msgpack.Decoder(SamplingParams)
_beams = msgspec.msgpack.Decoder(BeamSearchParams | None)
_pooling = msgspec.msgpack.Decoder(PoolingParams | None)
_items = msgspec.msgpack.Decoder(list[msgspec.Raw])
_conversation = msgspec.msgpack.Decoder(WireConversation)


class _SharedParams(Generic[Value]):
    """Parameters that many requests of a message share: unpacked once, or refused once."""

    def __init__(self, packed: msgspec.Raw, decode: Callable[[msgspec.Raw], Value]) -> None:
        self.packed = packed
        self.num_bytes = 0
        self.refusal: str | None = None
        self._decode = decode
        self._value: Value | msgspec.UnsetType = msgspec.UNSET

    def unpacked(self) -> Value:
        """The parameters; raises `RequestError`."""
        if self.refusal is not None:
            raise RequestError(self.refusal)
        if self._value is msgspec.UNSET:
            try:
                self._value = _checked(self._decode, self.packed)
            except RequestError as error:
                self.refusal = str(error)
                raise
        return self._value


_Shared = _SharedParams[BeamSearchParams | None] | _SharedParams[PoolingParams | None]
_Part = PackedRequest | _SharedParams[SamplingParams] | _Shared


class RequestBatch:
    """The constructor raises for a message that no honest client would send; after it every request has a number."""

    def __init__(self, packed: PackedAsk) -> None:
        for items in (packed.requests, packed.params):
            if (length := array_length(memoryview(items))) > MOST_REQUESTS:
                raise PenstockError(f"A message of {length:,} requests came, and {MOST_REQUESTS:,} are the most.")
        self.requests = [PackedRequest(_number.decode(each).number, each) for each in _items.decode(packed.requests)]
        self._params = [_SharedParams(each, _params.decode) for each in _items.decode(packed.params)]
        self._beams = _SharedParams(packed.beams, _beams.decode)
        self._pooling = _SharedParams(packed.pooling, _pooling.decode)

    def measure(self) -> None:
        """Compute the unpacked size of each part. Counting stops at `_MOST_VALUES`, since it takes time as well."""
        left = _MOST_VALUES
        parts: tuple[_Part, ...] = (self._beams, self._pooling, *self.requests, *self._params)
        for one in parts:
            try:
                if left <= 0:
                    raise RequestError(f"A message may hold {_MOST_VALUES:,} values, and this one holds more.")
                count = num_values(memoryview(one.packed))
                one.num_bytes = bytes_of_values(one.packed, count)
            except RequestError as error:
                count = MOST_VALUES
                one.refusal = str(error)
            left -= count

    def groups(self) -> Iterator[list[PackedRequest]]:
        """The requests in small groups, so that other clients' requests are served in between."""
        group: list[PackedRequest] = []
        num_bytes = 0
        for one in self.requests:
            if group and (len(group) == _GROUP or num_bytes + one.num_bytes > _GROUP_BYTES):
                yield group
                group, num_bytes = [], 0
            group.append(one)
            num_bytes += one.num_bytes
        if group:
            yield group

    async def unpacked(
        self, group: Sequence[PackedRequest], session: PrivateSession, client: Hashable
    ) -> list[UnpackedRequest]:
        """The unpacked requests in order, with rendered texts instead of conversations."""
        found = await session.threads.texts.run(self._all_unpacked, group, client=client)
        conversations = [one.conversation for one in found if one.conversation is not None]
        texts = iter(await rendered(session, conversations, client))
        for one in found:
            if one.conversation is not None:
                parsed = parse_prompt(next(texts), one.asked.params)
                names = ("beams", "pooled", "media", "seed", "delta_tokens", "said", "receipt", "expected")
                one.asked = replace(parsed, **{name: getattr(one.asked, name) for name in names})
        return found

    def _all_unpacked(self, group: Sequence[PackedRequest]) -> list[UnpackedRequest]:
        return [self._unpacked(one) for one in group]

    def _unpacked(self, one: PackedRequest) -> UnpackedRequest:
        try:
            if one.refusal is not None:
                raise RequestError(one.refusal)
            request = _checked(_request.decode, one.packed)
            if not 0 <= request.params < len(self._params):
                raise RequestError(f"The request names parameters {request.params}; there are {len(self._params)}.")
            params = self._params[request.params]
            asked = _asked(request, params.unpacked(), self._beams.unpacked())
            asked.pooled, asked.second_text = self._pooling.unpacked(), request.second_text
            num_bytes = params.num_bytes + len(request.media)
            return UnpackedRequest(one.number, asked, request.conversation, request.is_streamed, num_bytes)
        except RequestError as error:
            return UnpackedRequest(one.number, ParsedPrompt(None, None, SamplingParams(), str(error)))


def conversation_of(packed: msgspec.Raw) -> WireConversation:
    """The conversation, which was measured before; raises `RequestError` if it is invalid."""
    return _checked(_conversation.decode, packed)


def _checked(decode: Callable[[msgspec.Raw], Value], packed: msgspec.Raw) -> Value:
    try:
        return decode(packed)
    except RecursionError:
        raise RequestError("The request can't be read: its values are nested too deep.") from None
    except Exception as error:  # of a parameter's rule, given a value of a type that it doesn't expect
        raise RequestError(f"The request can't be read: {error}") from error


def _asked(request: WireRequest, params: SamplingParams, beams: BeamSearchParams | None) -> ParsedPrompt:
    if beams is not None and params.n != beams.beam_width:
        raise RequestError(f"A search of {beams.beam_width} beams has as many answers, and n={params.n} came with it.")
    media, receipt = unpacked_media(request.media) if request.media else (), None
    if request.receipt:
        asked = of_receipt(Receipt.read(request.receipt))
        if not media:
            return asked
        params, beams, receipt = asked.params, asked.beams, asked.receipt
    is_chat = request.conversation is not None
    token_ids = None if is_chat or request.token_ids is None else _token_ids(request.token_ids)
    return ParsedPrompt(
        None if is_chat else request.text,
        token_ids,
        params,
        is_chat=is_chat,
        beams=beams,
        media=media,
        seed=request.seed,
        delta_tokens=request.delta_tokens,
        said=request.said,
        receipt=receipt,
        expected=request.expected,
    )


def _token_ids(packed: bytes) -> Sequence[int]:
    if len(packed) % 4:
        raise RequestError(f"Prompt token ids take four bytes each, and {len(packed):,} came.")
    return values(packed)
