"""What the server holds to: keys, hosts, room for so many, clients that send or read too slowly, clients that go."""

import asyncio
import concurrent.futures
import json
import socket
import time
from contextlib import suppress

import httpx
import pytest
from builders.raw_http import closes_within, connected, request, spoken
from builders.served import served

LONG = {"model": "pocket", "prompt": "What is", "max_tokens": 1500, "ignore_eos": True, "stream": True}
SHORT = {"model": "pocket", "prompt": "What is", "max_tokens": 1}


def until(holds, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.01)


def test_a_key_is_asked_for_everywhere_but_at_the_page_and_health(pocket, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-key\n# a note\n\nsecond-key\n")
    with served(*pocket, api_key_file=str(keys)) as server, httpx.Client(base_url=server.address) as client:
        for path in ("/", "/health", "/openapi.json"):
            assert client.get(path).status_code == 200
        for wrong in ({}, {"Authorization": "Bearer first"}, {"Authorization": "Basic first-key"},
                      {"Authorization": "Bearer # a note"}):  # fmt: skip
            assert client.get("/v1/models", headers=wrong).status_code == 401
            assert client.get("/metrics", headers=wrong).status_code == 401
        for key in ("first-key", "second-key"):
            assert client.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_cached_prefixes_are_not_shared_between_keys(pocket, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    with served(*pocket, api_key_file=str(keys)) as server, httpx.Client(base_url=server.address) as client:

        def cached(key):
            body = {**SHORT, "prompt": "A text of its own about rivers and stones. " * 12}
            reply = client.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})
            return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert cached("one") == 0
        assert cached("one") > 0
        assert cached("two") == 0


def test_names_of_this_server_can_be_told(pocket):
    with served(*pocket, allowed_hosts=["box.example"]) as server:

        def status(host):
            sent = f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            return spoken(server.port, sent.encode())[9:12]

        assert status("box.example:80") == status("127.0.0.1") == status("[::1]:1") == b"200"
        for other in ("other.example", "[::1]other.example", "[::1", "127.0.0.1:@other.example", "localhost:other",
                      "::1:80", "", "localhost:80:80"):  # fmt: skip
            assert status(other) == b"403", other


@pytest.mark.parametrize("twice", ["Content-Type: text/plain", "Content-Encoding: gzip"])
def test_a_header_that_says_what_a_body_is_stands_once(server, twice):
    sent = request(b"{}", Content_Encoding="identity").replace(b"Host:", twice.encode() + b"\r\nHost:")
    said = spoken(server.port, sent)
    assert said[9:12] == b"400"


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/health"])
def test_what_is_only_read_has_no_other_method(server, path):
    for method in ("TRACE", "DELETE", "POST", "X"):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert spoken(server.port, head.encode())[9:12] in (b"400", b"405"), method


def test_a_request_beyond_the_queue_is_told_when_to_come_again(pocket):
    with served(*pocket, max_requests=1, max_queue=0) as server, httpx.Client(base_url=server.address) as client:
        with client.stream("POST", "/v1/completions", json=LONG) as stream:
            lines = stream.iter_lines()  # held: httpx closes the stream with its iterator
            assert next(lines).startswith("data: ")
            refused = client.post("/v1/completions", json=SHORT)
            assert refused.status_code == 429, refused.text
            assert refused.headers["retry-after"] == "1"
            assert client.get("/health").status_code == 200
        until(lambda: client.post("/v1/completions", json=SHORT).status_code == 200)


def test_requests_wait_for_their_turn_where_the_queue_has_room(pocket):
    with (
        served(*pocket, max_requests=1, max_queue=16) as server,
        httpx.Client(base_url=server.address) as client,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        replies = list(pool.map(lambda _: client.post("/v1/completions", json=SHORT).status_code, range(8)))
    assert replies == [200] * 8


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", LONG),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "stream": True}),
    ("/v1/completions", {**LONG, "stream": False}),
], ids=["stream", "chat", "whole"])  # fmt: skip
def test_what_runs_ends_with_its_client_and_gives_its_blocks_back(server, path, body):
    before = server.stats()
    content = json.dumps(body).encode()
    connection = connected(server.port)
    connection.sendall(request(content, path))
    until(lambda: server.stats().running > 0)
    connection.close()
    until(lambda: server.stats().running == 0, seconds=1.0)
    assert server.stats().free_blocks == before.free_blocks


def test_a_client_that_never_ends_its_headers_is_shed(pocket):
    with served(*pocket, header_timeout=0.3) as server, connected(server.port) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        assert closes_within(connection, 5)


def test_a_client_that_says_nothing_is_shed(pocket):
    with served(*pocket, header_timeout=0.3) as server, connected(server.port) as connection:
        assert closes_within(connection, 5)


def test_a_client_that_closes_half_way_is_shed(server):
    with connected(server.port) as connection:
        connection.sendall(request(b"{" * 100)[:-50])
        connection.shutdown(socket.SHUT_WR)
        assert closes_within(connection, 5)


def test_a_hundred_slow_clients_hold_nobody_up(server, http):
    slow = [connected(server.port) for _ in range(100)]
    for number, connection in enumerate(slow):
        connection.sendall(b"GET / HT" if number % 2 else request(b"{" * 1000)[:-500])
    assert http.post("/v1/completions", json=SHORT).status_code == 200
    for connection in slow:
        connection.close()


def test_a_client_that_never_ends_its_body_is_shed(pocket):
    with served(*pocket, body_timeout=0.3) as server:
        said = spoken(server.port, request(b"{", Content_Length="100"))
    assert said.startswith(b"HTTP/1.1 408")


def test_a_client_that_reads_nothing_is_shed_and_delays_nobody(pocket):
    with served(*pocket, stall_timeout=0.5) as server, connected(server.port) as connection:
        body = {**LONG, "n": 8, "logprobs": 20, "max_tokens": 1900}
        connection.sendall(request(json.dumps(body).encode()))
        with httpx.Client(base_url=server.address, timeout=30) as client:
            until(lambda: server.stats().running > 0)
            assert client.post("/v1/completions", json=SHORT).status_code == 200
            until(lambda: server.stats().running == 0, seconds=30)


def test_an_endless_body_in_chunks_is_cut_off(pocket):
    with served(*pocket, max_body_bytes=10_000) as server:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        said = spoken(server.port, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 50)
    assert said.startswith(b"HTTP/1.1 413")


def test_an_answer_that_takes_too_long_is_ended(pocket):
    with served(*pocket, request_timeout=0.2) as server, httpx.Client(base_url=server.address) as client:
        reply = client.post("/v1/completions", json={**LONG, "stream": False, "max_tokens": 1900})
        assert reply.status_code == 408
        until(lambda: server.stats().running == 0)


def test_a_new_connection_takes_the_place_of_a_silent_one_and_never_of_a_busy_one(pocket):
    with served(*pocket, max_connections=2) as server, httpx.Client(base_url=server.address) as client:
        silent = [connected(server.port) for _ in range(2)]
        with client.stream("POST", "/v1/completions", json=LONG) as first:
            lines = first.iter_lines()
            assert next(lines).startswith("data: ") and closes_within(silent[0], 5)
            with connected(server.port) as second:
                second.sendall(request(json.dumps(LONG).encode()))
                assert second.recv(65536).startswith(b"HTTP/1.1 200") and closes_within(silent[1], 5)
                with connected(server.port) as third:
                    assert closes_within(third, 5)
                assert next(line for line in lines if line).startswith("data: ")
                assert second.recv(65536)

        def is_answered():  # once the server has heard that those two are gone
            with suppress(httpx.TransportError):
                return client.post("/v1/completions", json=SHORT).status_code == 200

        until(is_answered)


def test_places_change_hands_when_many_connections_come_at_once(pocket):
    _, loop = pocket
    with served(*pocket, max_connections=2) as server:
        loop.call_soon_threadsafe(time.sleep, 0.3)  # what comes meanwhile is accepted in one go
        connections = [connected(server.port) for _ in range(6)]
        assert [closes_within(connection, 5) for connection in connections[:4]] == [True] * 4
        for connection in connections[4:]:
            connection.sendall(request(json.dumps(SHORT).encode()))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_what_a_trailer_says_is_no_header(pocket, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    head = b"POST /v1/completions HTTP/1.1\r\n%bContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\n%b\r\n"

    def status(headers, trailers):
        content = json.dumps(SHORT).encode()
        sent = head % (headers + b"Connection: close\r\n") + body % (len(content), content, trailers)
        return spoken(server.port, sent)[9:12]

    host, key = b"Host: localhost\r\n", b"Authorization: Bearer one\r\n"
    with served(*pocket, api_key_file=str(keys)) as server:
        assert status(host + key, b"X: y\r\n") == status(host + key, key + host) == b"200"
        assert status(host, key) == b"401"
        assert status(key, host) == b"403"


def test_a_server_that_closes_lets_answers_end_for_a_time_and_waits_for_nobody_else(pocket):
    ending = {**LONG, "max_tokens": 200}
    with served(*pocket) as server, httpx.Client(base_url=server.address) as client:
        idle, slow = connected(server.port), connected(server.port)
        slow.sendall(b"POST /")
        assert client.get("/v1/models").status_code == 200
        with httpx.stream("POST", server.address + "/v1/completions", json=ending) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            closing = asyncio.run_coroutine_threadsafe(server.server.close(30), server.loop)
            assert closes_within(idle, 5) and closes_within(slow, 5)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        closing.result(10)


def test_what_is_still_answered_then_is_cut_off(pocket):
    with served(*pocket) as server, connected(server.port) as connection:
        connection.sendall(request(json.dumps({**LONG, "max_tokens": 1900}).encode(), Connection="keep-alive"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        asyncio.run_coroutine_threadsafe(server.server.close(0.05), server.loop).result(10)
        assert closes_within(connection, 5)
        until(lambda: server.stats().running == 0)


def test_templates_are_taken_where_clients_are_trusted_and_fail_alone(pocket):
    def asked(client, template):
        body = {"messages": [{"role": "user", "content": "hi"}], "chat_template": template, "max_tokens": 1}
        return client.post("/v1/chat/completions", json=body)

    doubling = "{% set a = namespace(b='x') %}{% for i in range(99) %}{% set a.b = a.b + a.b %}{% endfor %}"
    with (
        served(*pocket, trust_request_chat_template=True) as server,
        httpx.Client(base_url=server.address, timeout=30) as client,
    ):
        assert asked(client, "{{ 'What is' }}").json()["usage"]["prompt_tokens"] == 2
        refused = asked(client, doubling)
        assert refused.status_code == 400 and "MemoryError" in refused.json()["error"]["message"]


def test_the_engine_is_asked_for_its_health_and_figures(http):
    assert http.get("/health").json() == {"status": "ok", "models": {"pocket": "ok"}}
    text = http.get("/metrics").text
    for name in ("requests_running", "requests_waiting", "kv_usage_ratio", "prefix_hit_tokens_total",
                 "preemptions_total", "prompt_tokens_total", "generated_tokens_total"):  # fmt: skip
        assert f'\npenstock_{name}{{model="pocket"}} ' in text
    for name in ("time_to_first_token_seconds", "time_between_tokens_seconds", "request_seconds"):
        assert f"# TYPE penstock_{name} histogram" in text


def test_the_page_loads_nothing_from_anywhere_else(http):
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    for outside in ("<script src", '<link rel="stylesheet', "@import", "https://"):
        assert outside not in page.text
