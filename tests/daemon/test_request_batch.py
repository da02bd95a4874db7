"""A message of requests taken apart: what is common to many is read once, and no message is read without end."""

import asyncio
from types import SimpleNamespace

import msgspec
from builders.cases import for_each

from penstock.frontend.daemon.clients import request_batch
from penstock.frontend.daemon.clients.request_batch import RequestBatch
from penstock.frontend.session.threads import Threads
from penstock.protocol.attach import MOST_REQUESTS, PackedAsk, WireConversation, WireRequest

SESSION = SimpleNamespace(threads=SimpleNamespace(texts=Threads("Texts", 1)))


def batch(requests, params, beams=None):
    packed = msgspec.msgpack.encode(["Ask", requests, params, beams])
    found = RequestBatch(msgspec.msgpack.decode(packed, type=PackedAsk))
    found.measure()
    return found


def unpacked(found):
    async def all_of_it():
        return [one for group in found.groups() for one in await found.unpacked(group, SESSION, "one")]

    return asyncio.run(all_of_it())


def texts(count):
    return [WireRequest(number, 0, text="a") for number in range(count)]


@for_each("params, beams", [([{"bad_words": [0]}], None), ([{"temperature": -1}], None), ([{}], {"beam_width": "x"})])
def test_what_many_requests_have_in_common_is_refused_once(monkeypatch, params, beams):
    decoded = []
    checked = request_batch._checked

    def counted(decode, packed):
        decoded.append(packed)
        return checked(decode, packed)

    monkeypatch.setattr(request_batch, "_checked", counted)
    found = unpacked(batch(texts(MOST_REQUESTS), params, beams))
    assert len({one.asked.refusal for one in found}) == 1 and found[0].asked.refusal
    assert MOST_REQUESTS < len(decoded) <= MOST_REQUESTS + 2


def test_a_message_is_read_no_further_than_any_client_needs():
    conversation = WireConversation([[0] * 131_000], None, None, {})
    found = batch([WireRequest(number, 0, conversation=conversation) for number in range(20)], [{}])
    refused = [one.refusal for one in found.requests]
    assert refused[:8] == [None] * 8 and refused[9] and all("1,048,576 values" in each for each in refused[9:])


def test_parameters_count_as_what_they_are():
    found = batch(texts(2), [{"bad_words": ["a"] * 130_000}] * 20)
    assert found.requests[0].refusal is None
    assert unpacked(found)[0].num_bytes > 128 * 130_000
