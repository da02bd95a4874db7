"""What clients make the server hold is charged while it is held, and given back when they are gone, at every stage."""

import json
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from builders.raw_http import connected, heard, request
from builders.served import Served, running_model, served

from penstock.frontend.requests.budget import Budget

MIB = 1 << 20
SHORT = {"prompt": "What is", "max_tokens": 1}
ENDLESS = {"prompt": "What is", "max_tokens": 1900, "ignore_eos": True}


@pytest.fixture(scope="module")
def quick() -> Iterator[tuple]:
    """A model that computes nothing."""
    with running_model("pocket", load_format="stand-in", max_model_len=2048, num_gpu_blocks_override=1024) as found:
        yield found


@pytest.fixture(scope="module")
def budget() -> Budget:
    return Budget(total=8 * MIB, per_client=2 * MIB)


@pytest.fixture(scope="module")
def server(quick, budget) -> Iterator[Served]:
    with served(*quick, budget=budget, max_requests=2) as found:
        yield found


def until(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.005)


def posted(body: dict, path: str = "/v1/completions", **headers: str) -> bytes:
    return request(json.dumps(body).encode(), path, **headers)


def status(connection: socket.socket) -> bytes:
    return heard(connection)[9:12]


def answered(server: Served, body: dict = SHORT) -> httpx.Response:
    return httpx.post(server.address + "/v1/completions", json=body, timeout=60)


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


@pytest.mark.parametrize("how", ["closes", "resets", "ends its side"])
@pytest.mark.parametrize("stage", STAGES)
def test_whenever_clients_leave_nothing_stays_charged(server, budget, stage, how):
    connections = [connected(server.port) for _ in range(6)]
    for connection in connections:
        connection.sendall(STAGES[stage])
    if b"HTTP/1.1\r\n" in STAGES[stage] and b"\r\n\r\n" in STAGES[stage]:
        until(lambda: budget.used > 0 or select.select(connections, [], [], 0)[0], "the requests have arrived")
    for connection in connections:
        if how == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == "ends its side":
            connection.shutdown(socket.SHUT_WR)
        connection.close()
    until(lambda: budget.used == 0, f"{budget.used:,} bytes are given back")
    until(lambda: server.stats().running == 0, "nothing runs")


def test_answers_that_were_read_leave_nothing_charged(server, budget):
    for body in (SHORT, SHORT | {"stream": True}, {**SHORT, "logprobs": 5, "max_tokens": 50}, {"prompt": 5}):
        assert answered(server, body).status_code in (200, 400)
        until(lambda: budget.used == 0, "it is given back")


def test_who_asks_for_more_than_a_share_is_told_what_to_do(server, budget):
    reply = answered(server, ENDLESS | {"n": 12, "logprobs": 20})
    assert reply.status_code == 429 and reply.headers["retry-after"] == "1"
    error = reply.json()["error"]
    assert error["type"] == "rate_limit_error" and "ask for less at once" in error["message"]
    until(lambda: budget.used == 0 and server.stats().running == 0, "it has ended in the engine, too")


def test_a_stream_that_takes_too_much_ends_with_the_same_words(server, budget):
    with connected(server.port) as connection:
        connection.settimeout(60)
        connection.sendall(posted(ENDLESS | {"n": 12, "logprobs": 20, "stream": True}))
        until(lambda: server.stats().running > 0, "it runs")
        until(lambda: server.stats().running == 0, "it was ended", 60)
        said = heard(connection)
    assert b"ask for less at once" in said[-400:] and b"data: [DONE]\n\n" in said[-40:]
    until(lambda: budget.used == 0, "it is given back")


def test_one_connection_does_not_take_the_share_of_others(server, budget):
    """All are at one address."""
    with ExitStack() as stack:
        half = posted({"prompt": "a", "user": "x" * (8 * MIB // 5)})[:-10]
        for _ in range(8):  # 6 MiB of 8 may be theirs
            stack.enter_context(connected(server.port)).sendall(half)
        until(lambda: budget.used > 5 * MIB, "the budget is used up")
        for _ in range(5):
            assert answered(server).status_code == 200
        assert budget.used > 5 * MIB
    until(lambda: budget.used == 0, "it is given back")


def test_where_all_is_taken_bodies_that_take_their_time_give_way(server, budget):
    with ExitStack() as stack:
        half = posted({"prompt": "a", "user": "x" * (8 * MIB // 5)})[:-10]
        slow = [stack.enter_context(connected(server.port)) for _ in range(3)]
        for connection in slow:
            connection.sendall(half)
        until(lambda: budget.used > 5 * MIB, "they are read")
        body = {**SHORT, "user": "x" * (MIB // 3)}
        assert answered(server, body).status_code == 429, "they have a second"
        until(lambda: answered(server, body).status_code == 200, "one of them has made room")
        assert status(select.select(slow, [], [], 5)[0][0]) == b"408"


def test_long_bodies_are_decoded_beside_short_ones(server, budget):
    """Two dozen long ones at once, and a short one comes through before they are done."""
    long = posted({"prompt": "a", "max_tokens": 1, "metadata": {"a": [{"b": 1.5}] * 2_000}})
    with ExitStack() as stack:
        for _ in range(24):
            stack.enter_context(connected(server.port)).sendall(long)
        assert answered(server).status_code == 200
    until(lambda: budget.used == 0, "it is given back")


def test_keys_have_a_share_each_however_many_connections_they_use(quick, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    budget = Budget(total=16 * MIB, per_client=4 * MIB)
    half = {"prompt": "a", "user": "x" * (3 * MIB // 4)}
    with served(*quick, budget=budget, api_key_file=str(keys)) as server, ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(connected(server.port))
            connection.sendall(posted(half, Authorization="Bearer one")[:-10])
        until(lambda: budget.used > 1.5 * MIB, "they are read")

        def reply(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            url = server.address + "/v1/completions"
            return httpx.post(url, json=SHORT | half, headers=headers, timeout=60).status_code

        assert (reply("one"), reply("two")) == (429, 200)


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", SHORT), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/v1/responses", {"input": "hi"}),
], ids=["completions", "chat", "responses"])  # fmt: skip
def test_a_priority_is_for_those_whom_the_owner_lets(server, quick, path, body):
    limit = {"max_output_tokens" if "input" in body else "max_tokens": 1}
    for priority, expected in ((-(10**9), 400), (1, 400), (0, 200), (None, 200)):
        reply = httpx.post(server.address + path, json=body | limit | {"priority": priority}, timeout=60)
        assert reply.status_code == expected, reply.text
        assert expected == 200 or "allow_priority" in reply.json()["error"]["message"]
    with served(*quick, allow_priority=True) as other:
        assert httpx.post(other.address + path, json=body | limit | {"priority": -5}, timeout=60).status_code == 200
