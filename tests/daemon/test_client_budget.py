"""One client's place in the daemon, in one process: what it is charged, when it waits, and when it is sent away."""

import asyncio
import functools
import itertools
import socket
import struct
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from builders.cases import for_each

from penstock.frontend.daemon.clients import client_budget, client_connection, frames, outbox, request_batch
from penstock.frontend.daemon.clients.client_budget import ClientBudget
from penstock.frontend.daemon.clients.client_connection import ClientConnection, MessageThreads, limit_connections
from penstock.frontend.daemon.clients.daemon_request import DaemonRequest
from penstock.frontend.daemon.clients.questions import QuestionHandler
from penstock.frontend.daemon.clients.request_batch import RequestBatch
from penstock.frontend.requests.budget import Budget, BudgetError
from penstock.frontend.session.threads import Threads
from penstock.protocol import attach

MIB = 1 << 20


def never() -> None:
    """Nobody has gone."""


def on_a_loop(test):
    @functools.wraps(test)
    def run(**fixtures):
        return asyncio.run(asyncio.wait_for(test(**fixtures), 120))

    return run


@on_a_loop
async def test_who_has_something_running_waits_until_that_is_given_back_which_all_is_at_the_end_and_no_more():
    mine = ClientBudget(Budget(8 * MIB, 4 * MIB), "one", lambda: True, never)
    mine.take(3 * MIB)
    waits = asyncio.create_task(mine.take_when_free(2 * MIB))
    await asyncio.sleep(0)
    assert not waits.done()
    mine.give(2 * MIB)
    await waits
    assert mine.num_bytes == 3 * MIB
    budget = Budget(8 * MIB, 4 * MIB)
    mine, other = (ClientBudget(budget, name, lambda: True, never) for name in ("one", "two"))
    mine.take(MIB)
    other.take(MIB)
    mine.close()
    mine.give(MIB)  # by what ends after it
    assert budget.used == MIB


@on_a_loop
async def test_who_has_nothing_running_waits_for_others_only_so_long_and_who_has_gone_not_at_all(monkeypatch):
    def gone():
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await ClientBudget(Budget(MIB, MIB), "one", lambda: True, gone).take_when_free(2 * MIB)
    monkeypatch.setattr(client_budget, "_WAIT_SECONDS", 0.01)
    budget = Budget(8 * MIB, 4 * MIB)
    mine = ClientBudget(budget, "one", lambda: False, never)
    with pytest.raises(BudgetError, match="one client may take"):
        await mine.take_when_free(5 * MIB)
    others = [ClientBudget(budget, name, lambda: True, never) for name in ("two", "three")]
    for other in others:
        other.take(3 * MIB)
    with pytest.raises(BudgetError, match="All clients"):
        await mine.take_when_free(3 * MIB)
    others[0].close()
    await mine.take_when_free(3 * MIB)


class Owner:
    async def status(self) -> attach.DaemonStatus:
        return attach.DaemonStatus(1, "", 0.0, "", "", 0, False, "", [])


@asynccontextmanager
async def connected(budget: Budget):
    clients = []

    async def serve(reader, writer):
        clients.append(ClientConnection(reader, writer, None, QuestionHandler(Owner()), budget, MessageThreads()))
        await clients[0].run()

    with TemporaryDirectory(prefix="pr") as folder:
        server = await asyncio.start_unix_server(serve, f"{folder}/s")
        reader, writer = await asyncio.open_unix_connection(f"{folder}/s")
        try:
            yield reader, writer, clients
        finally:
            writer.close()
            server.close()


@on_a_loop
async def test_who_never_attaches_or_stops_in_the_middle_of_a_message_is_sent_away_and_all_is_given_back(monkeypatch):
    budget = Budget(8 * MIB, 8 * MIB)
    with monkeypatch.context() as hasty:
        hasty.setattr(frames, "_MESSAGE_SECONDS", 0.05)
        async with connected(budget) as (reader, writer, clients):
            writer.write(struct.pack("<I", 60_000) + b"x" * 50_000)
            assert b"did not come within" in await reader.read()
            while budget.used:
                await asyncio.sleep(0)
            assert not clients[0].is_stranger
    for question, seconds in ((b"", 0.2), (attach.frame(attach.AskStatus(7)), 2.0)):  # which is answered
        monkeypatch.setattr(frames, "ATTACH_SECONDS", seconds)
        async with connected(budget) as (reader, writer, _):
            writer.write(question)
            heard = await reader.read()
            assert b"attach to a model" in heard and (b"Answer" in heard) == bool(question)


@on_a_loop
async def test_who_reads_nothing_is_sent_away_when_that_has_become_much(monkeypatch):
    monkeypatch.setattr(outbox, "_UNREAD_SECONDS", 0.05)
    monkeypatch.setattr(outbox, "_MUCH_UNREAD", 1000)
    monkeypatch.setattr(client_connection, "_FAREWELL_SECONDS", 0.01)
    budget = Budget(8 * MIB, 8 * MIB)
    async with connected(budget) as (_, writer, _):
        writer.transport.pause_reading()
        with pytest.raises(ConnectionError):
            for number in itertools.count():
                writer.write(attach.frame(attach.AskStatus(number)))
                await writer.drain()
        while budget.used:
            await asyncio.sleep(0)


class NotReady:
    """A model that is being loaded, or whose worker hangs."""

    async def ready(self):
        await asyncio.Event().wait()

    def release(self) -> None:
        """Its only lease."""


def render(number: int, *messages: object) -> bytes:
    return attach.frame(attach.AskRender(number, attach.WireConversation(list(messages), None, None, {}), True))


@on_a_loop
async def test_a_question_is_charged_until_it_is_answered_and_what_a_conversation_unpacks_to_before_it_is(monkeypatch):
    budget = Budget(64 * MIB, 32 * MIB)
    async with connected(budget) as (_, writer, clients):
        while not clients:
            await asyncio.sleep(0)
        clients[0].model, clients[0]._frames._is_first = NotReady(), False
        for number in range(3):
            writer.write(render(number, "x" * 2 * MIB))
        await writer.drain()
        while len(clients[0]._asking) < 3:
            await asyncio.sleep(0)
        assert budget.used >= 6 * MIB
    while budget.used:
        await asyncio.sleep(0)
    monkeypatch.setattr(client_budget, "_WAIT_SECONDS", 0.01)

    class Ready(NotReady):
        async def ready(self):
            return SimpleNamespace(threads=SimpleNamespace(texts=Threads("Texts", 1)))

    async with connected(Budget(64 * MIB, 4 * MIB)) as (reader, writer, clients):
        while not clients:
            await asyncio.sleep(0)
        clients[0].model, clients[0]._frames._is_first = Ready(), False
        writer.write(render(0, [0] * 100_000))  # 0.1 MiB become 13
        assert b"one client may take" in await answer(reader)


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The next message that says more than that the daemon works."""
    while True:
        length = int.from_bytes(await reader.readexactly(4), "little")
        if b"StillWorking" not in (message := await reader.readexactly(length)):
            return message


@dataclass(eq=False)
class Connection:
    is_stranger: bool
    was_sent_away: bool = False

    def hang_up(self) -> None:
        self.is_stranger, self.was_sent_away = False, True


def test_the_oldest_that_has_not_attached_makes_room_and_where_all_have_the_next_one_is_declined():
    connections = []
    for number in range(300):
        connections.append(Connection(is_stranger=number % 3 > 0))
        assert limit_connections(connections) is None
    strangers = [connection for connection in connections if connection.is_stranger]
    assert len(strangers) < 64
    gone = [connection for connection in connections if connection.was_sent_away]
    assert gone == [each for each in connections if each.was_sent_away or each.is_stranger][: len(gone)]
    clients = [Connection(is_stranger=False) for _ in range(511)]
    assert limit_connections(clients) is None
    assert "512 clients" in limit_connections([*clients, Connection(is_stranger=False)])


@on_a_loop
async def test_what_comes_while_an_answer_is_packed_is_charged(monkeypatch):
    monkeypatch.setattr(outbox, "_GROUP_BYTES", 1000)
    packing, budget = Threads("Answers", 1), Budget(8 * MIB, 8 * MIB)
    taken, come = threading.Event(), threading.Event()
    pending = SimpleNamespace(
        num_bytes=5000, num_generated=0, is_fresh=True, is_finished=False, error=None, notify=None
    )

    charged = []  # as each answer is taken

    def pack(group):
        charged.append(group[0].charged)
        pending.num_bytes = 0
        taken.set()
        assert come.wait(60)
        return b"packed"

    monkeypatch.setattr(outbox, "_packed", pack)
    mine = ClientBudget(budget, "one", lambda: True, never)
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=ours)
    box = outbox.ClientOutbox(writer, mine, packing, lambda request: None)
    request = DaemonRequest(0, pending, None, is_streamed=True, is_chat=False, num_bytes=100)
    box.note(request)
    telling = asyncio.create_task(box.run())
    await asyncio.to_thread(taken.wait, 60)
    pending.num_bytes, pending.is_fresh = 700, False  # noted while the thread is at work
    box.note(request)
    await asyncio.sleep(0)
    come.set()
    while len(charged) < 2:
        await asyncio.sleep(0)
    assert charged == [5100, 800]
    telling.cancel()
    theirs.close()


# --- a message of requests taken apart: the common parts are read once, and no message is read without end ------------

SESSION = SimpleNamespace(threads=SimpleNamespace(texts=Threads("Texts", 1)))


def batch(requests, params, beams=None):
    packed = msgspec.msgpack.encode(["Ask", requests, params, beams])
    found = RequestBatch(msgspec.msgpack.decode(packed, type=attach.PackedAsk))
    found.measure()
    return found


@on_a_loop
async def unpacked(found):
    return [one for group in found.groups() for one in await found.unpacked(group, SESSION, "one")]


def texts(count):
    return [attach.WireRequest(number, 0, text="a") for number in range(count)]


@for_each("params, beams", [([{"bad_words": [0]}], None), ([{"temperature": -1}], None), ([{}], {"beam_width": "x"})])
def test_what_many_requests_have_in_common_is_refused_once(monkeypatch, params, beams):
    checked = Mock(side_effect=request_batch._checked)
    monkeypatch.setattr(request_batch, "_checked", checked)
    found = unpacked(found=batch(texts(attach.MOST_REQUESTS), params, beams))
    assert len({one.asked.refusal for one in found}) == 1 and found[0].asked.refusal
    assert attach.MOST_REQUESTS < checked.call_count <= attach.MOST_REQUESTS + 2


@for_each("index", [-1, 1, 2**40])
def test_parameters_that_a_message_does_not_have_are_refused(index):
    [one] = unpacked(found=batch([attach.WireRequest(0, index, text="a")], [{}]))
    assert f"names parameters {index}; there are 1" in one.asked.refusal


def test_a_message_is_read_no_further_than_any_client_needs_and_parameters_count_as_what_they_are():
    conversation = attach.WireConversation([[0] * 131_000], None, None, {})
    found = batch([attach.WireRequest(number, 0, conversation=conversation) for number in range(20)], [{}])
    refused = [one.refusal for one in found.requests]
    assert refused[:8] == [None] * 8 and refused[9] and all("1,048,576 values" in each for each in refused[9:])
    found = batch(texts(2), [{"bad_words": ["a"] * 130_000}] * 20)
    assert found.requests[0].refusal is None
    assert unpacked(found=found)[0].num_bytes > 128 * 130_000
