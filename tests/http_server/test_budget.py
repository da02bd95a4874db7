"""What clients make the server hold is charged while it is held, and given back when they are gone, at every stage."""

import asyncio
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from builders.cases import for_each
from builders.raw_http import connected, heard, posted, reset
from builders.served import Served, served
from builders.watching import wait_until

from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.http.requests import body as body_module
from penstock.frontend.http.requests.body import BodyReader
from penstock.frontend.http.schemas.completions import CompletionRequest
from penstock.frontend.requests.budget import Budget, Charge

MIB = 1 << 20
SHORT = {"prompt": "What is", "max_tokens": 1}
ENDLESS = {"prompt": "What is", "max_tokens": 1900, "ignore_eos": True}


@pytest.fixture(scope="module")
def budget() -> Budget:
    return Budget(total=8 * MIB, per_client=2 * MIB)


@pytest.fixture(scope="module")
def server(quick, budget) -> Iterator[Served]:
    with served(*quick, budget=budget, max_requests=2) as found:
        yield found


def all_is_given_back(server: Served, budget: Budget) -> None:
    wait_until(lambda: budget.used == 0, "all bytes are given back")
    wait_until(server.is_idle, "nothing runs")
    assert server.stats().free_blocks == server.stats().blocks


def answered(server: Served, body: dict = SHORT, **given) -> httpx.Response:
    return httpx.post(server.address + "/v1/completions", json=body, timeout=60, **given)


STAGES = {
    "connected": b"",
    "headers": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
    "half a body": posted({"prompt": "x" * 200_000})[:-1000],
    "half a body in chunks": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n10000\r\n" + b" " * 65536 + b"\r\n",
    "a body too long to wait for": posted({"prompt": "x" * 400_000, "max_tokens": 1}),
    "waiting or whole": posted(ENDLESS),
    "whole, with log-probabilities": posted(ENDLESS | {"logprobs": 20, "n": 4}),
    "streaming": posted(ENDLESS | {"stream": True}),
    "streaming log-probabilities": posted(ENDLESS | {"stream": True, "logprobs": 20, "n": 8}),
    "a response": posted({"input": "hi", "stream": True, "metadata": {"a": "x" * 300_000}}, "/v1/responses"),
    "tokens": posted({"prompt": "a " * 8_000, "return_token_strs": True}, "/tokenize"),
}


# A server hears the same of a client that closes and of one that has ended its side before: once is enough for each.
LEAVING = [(stage, how) for stage in STAGES for how in ("closes", "resets")]
LEAVING += [(stage, "ends its side") for stage in ("half a body", "waiting or whole", "streaming")]


@for_each("stage, how", LEAVING)
def test_whenever_clients_leave_nothing_stays_charged(server, budget, stage, how):
    connections = [connected(server.port) for _ in range(6)]
    for connection in connections:
        connection.sendall(STAGES[stage])
    if b"\r\n\r\n" in STAGES[stage]:
        arrived = lambda: budget.used > 0 or select.select(connections, [], [], 0)[0]  # noqa: E731
        wait_until(arrived, "the requests have arrived")
    for connection in connections:
        if how == "resets":
            reset(connection)
        elif how == "ends its side":
            connection.shutdown(socket.SHUT_WR)
        connection.close()
    all_is_given_back(server, budget)


def test_answers_that_were_read_leave_nothing_charged_and_who_asks_for_more_than_a_share_is_told_what_to_do(
    server, budget
):
    for body in (SHORT, SHORT | {"stream": True}, {**SHORT, "logprobs": 5, "max_tokens": 50}, {"prompt": 5}):
        assert answered(server, body).status_code in (200, 400)
        all_is_given_back(server, budget)
    greedy = ENDLESS | {"n": 12, "logprobs": 20}
    reply = answered(server, greedy)
    assert reply.status_code == 429 and reply.headers["retry-after"] == "1"
    error = reply.json()["error"]
    assert error["type"] == "rate_limit_error" and "ask for less at once" in error["message"]
    all_is_given_back(server, budget)
    with connected(server.port) as connection:
        connection.sendall(posted(greedy | {"stream": True}))
        said = connection.recv(1000)  # and no more, until it was ended
        wait_until(server.is_idle, "it was ended")
        said += heard(connection)
    assert b"ask for less at once" in said[-400:] and b"data: [DONE]\n\n" in said[-40:]
    all_is_given_back(server, budget)


def test_numbers_beyond_a_share_are_refused_and_leave_nothing_charged(server, budget):
    questions = [{"type": "predicate", "instructions": f"It is {number}."} for number in range(100)]
    for state, status in (("a " * 900, 429), ("a", 200)):
        body = {"input": state, "questions": questions}
        reply = httpx.post(server.address + "/v1/decisions", json=body, timeout=60)
        assert reply.status_code == status, reply.text[:200]
        if status == 429:
            assert reply.headers["retry-after"] == "1" and "ask for less at once" in reply.json()["error"]["message"]
        all_is_given_back(server, budget)


def test_one_connection_does_not_take_the_share_of_others(server, budget):
    """All are at one address."""
    with ExitStack() as stack:
        half = posted({"prompt": "a", "user": "x" * (8 * MIB // 5)})[:-10]
        for _ in range(8):  # 6 MiB of 8 may be theirs
            stack.enter_context(connected(server.port)).sendall(half)
        wait_until(lambda: budget.used > 5 * MIB, "the budget is used up")
        for _ in range(5):
            assert answered(server).status_code == 200
        assert budget.used > 5 * MIB
    all_is_given_back(server, budget)


def test_where_all_is_taken_bodies_that_take_their_time_give_way(server, budget, monkeypatch):
    monkeypatch.setattr(body_module, "_PATIENCE", 1e9)
    with ExitStack() as stack:
        half = posted({"prompt": "a", "user": "x" * (8 * MIB // 5)})[:-10]
        slow = [stack.enter_context(connected(server.port)) for _ in range(3)]
        for connection in slow:
            connection.sendall(half)
        wait_until(lambda: budget.used > 5 * MIB, "they are read")
        body = {**SHORT, "user": "x" * (MIB // 3)}
        assert answered(server, body).status_code == 429, "they have their time"
        monkeypatch.setattr(body_module, "_PATIENCE", 0.0)
        assert answered(server, body).status_code == 200, "one of them has made room"
        assert heard(select.select(slow, [], [], 60)[0][0])[9:12] == b"408"


def test_several_that_want_the_room_of_a_slow_one_in_the_same_moment_have_it(monkeypatch):
    monkeypatch.setattr(body_module, "_PATIENCE", 0.0)

    def client(content, *, ends):
        """What it sends: the content, and nothing more where it never ends."""
        pieces = [{"type": "http.request", "body": content, "more_body": not ends}]

        async def receive():
            if not pieces:
                await asyncio.Event().wait()
            return pieces.pop()

        return receive

    async def run():
        reader, budget = BodyReader(HttpOptions()), Budget(MIB, MIB)

        def read(name, content, *, ends):
            charge = Charge(budget, name)
            scope = {"headers": [(b"content-type", b"application/json")]}
            task = asyncio.create_task(reader.read(scope, client(content, ends=ends), charge))
            task.add_done_callback(lambda task: task.exception() and charge.release())
            return task

        slow = read("slow", b"x" * 500_000, ends=False)
        while not budget.used:
            await asyncio.sleep(0)
        others = []
        for number in range(5):  # each a round of the loop later
            others.append(read(f"client {number}", b"x" * 120_000, ends=True))
            await asyncio.sleep(0)
        found = await asyncio.gather(slow, *others, return_exceptions=True)
        return [each.status if isinstance(each, ApiError) else len(each) for each in found]

    assert asyncio.run(run()) == [408] + [120_000] * 5


@for_each("content, status", [
    (b'{"prompt": "a", "zzz": 1}', 400), (b'{"prompt": "' + b"a" * 100_000, 400),
    (b'{"prompt": "a", "metadata": {"a": [' + b"[]," * 70_000 + b"[]]}}", 413), (b'{"prompt": "a"}', None),
])  # fmt: skip
def test_of_a_body_that_was_decoded_or_refused_nothing_is_kept(content, status):
    body, charge = bytearray(content), Charge(Budget(64 * MIB, 64 * MIB), "client")
    decoding = BodyReader(HttpOptions()).decoded(body, CompletionRequest, charge)
    if status is None:
        assert asyncio.run(decoding).prompt == "a"
    else:
        with pytest.raises(ApiError) as refused:
            asyncio.run(decoding)
        assert refused.value.status == status
    assert body == b""


def test_keys_have_a_share_each_however_many_connections_they_use(quick, keys):
    budget = Budget(total=16 * MIB, per_client=4 * MIB)
    half = {"prompt": "a", "user": "x" * (3 * MIB // 4)}
    with served(*quick, budget=budget, **keys) as server, ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(connected(server.port))
            connection.sendall(posted(half, Authorization="Bearer first")[:-10])
        wait_until(lambda: budget.used > 1.5 * MIB, "they are read")
        for key, status in (("first", 429), ("second", 200)):
            reply = answered(server, SHORT | half, headers={"Authorization": f"Bearer {key}"})
            assert reply.status_code == status


@for_each("path, body", [
    ("/v1/completions", SHORT), ("/v1/responses", {"input": "hi", "max_output_tokens": 1}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
])  # fmt: skip
def test_a_priority_is_for_those_whom_the_owner_lets(server, path, body):
    for priority, expected in ((-(10**9), 400), (1, 400), (0, 200), (None, 200)):
        reply = httpx.post(server.address + path, json=body | {"priority": priority}, timeout=60)
        assert reply.status_code == expected, reply.text
        assert expected == 200 or "allow_priority" in reply.json()["error"]["message"]


def test_an_owner_may_let_clients_have_a_priority(quick):
    with served(*quick, allow_priority=True) as server:
        assert answered(server, SHORT | {"priority": -5}).status_code == 200
