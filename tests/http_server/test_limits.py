"""What the server holds to: keys, hosts, room for so many, clients that send or read too slowly or go; TLS."""

import asyncio
import itertools
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from builders.cases import for_each
from builders.raw_http import connected, is_closed, posted, request, spoken
from builders.served import served, served_client
from builders.watching import wait_until

from penstock.frontend.http.answers.errors import as_api_error
from penstock.frontend.http.connections.server import HttpServer
from penstock.frontend.http.models import ModelNotServedError
from penstock.frontend.http.options import HttpOptions
from penstock.frontend.requests.budget import BudgetError
from penstock.protocol.errors import (
    BusyError,
    ClosedError,
    ConfigError,
    EngineDeadError,
    OutOfMemoryError,
    PenstockError,
    RequestError,
)

LONG = {"model": "pocket", "prompt": "What is", "max_tokens": 1900, "ignore_eos": True, "stream": True}
SHORT = {"model": "pocket", "prompt": "What is", "max_tokens": 1}
COMPLETIONS = "/v1/completions"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(paced):
    with served(*paced) as found:
        yield found


def authorization(key):
    return {"Authorization": f"Bearer {key}"}


@for_each("error, status, seconds, sentence", [
    (RequestError("top_p=2: must be a number from 0 to 1."), 400, 0, "top_p=2: must be a number from 0 to 1."),
    (ModelNotServedError("No model x."), 404, 0, "No model x."), (TimeoutError(), 408, 0, "took longer"),
    (BudgetError("Ask for less."), 429, 1, "Ask for less."), (BusyError("It is full."), 503, 1, "It is full."),
    (EngineDeadError("/root/a"), 503, 2, "Ask again"), (ClosedError("/root/a"), 503, 5, "shutting down"),
    (OutOfMemoryError("/root/a"), 503, 30, "not enough memory"), (PenstockError("/root/a"), 503, 5, "the server's log"),
    (KeyError("/root/a"), 500, 0, "failed in the server"),
])  # fmt: skip
def test_whatever_goes_wrong_has_its_status_and_the_seconds_after_which_to_try_again(error, status, seconds, sentence):
    told = as_api_error(error)
    assert (told.status, told.retry_after) == (status, seconds)
    assert sentence in str(told) and "/root" not in str(told)


def test_a_key_is_asked_for_everywhere_but_at_the_page_and_health(paced, keys):
    with served_client(paced, **keys) as (_, client):
        for path in ("/", "/health", "/openapi.json"):
            assert client.get(path).status_code == 200
        for wrong in ({}, authorization("firs"), {"Authorization": "Basic first"}, authorization("# a note")):
            assert client.get("/v1/models", headers=wrong).status_code == 401
            assert client.get("/metrics", headers=wrong).status_code == 401
        for key in ("first", "second"):
            assert client.get("/v1/models", headers=authorization(key)).status_code == 200


def test_cached_prefixes_are_not_shared_between_keys(paced, keys):
    with served_client(paced, **keys) as (_, client):

        def cached(key):
            body = {**SHORT, "prompt": "A text of its own about rivers and stones. " * 12}
            usage = client.post(COMPLETIONS, json=body, headers=authorization(key)).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        def cached_of_numbers(key):
            question = {"type": "predicate", "instructions": "It is wet."}
            body = {"input": "A text of its own about hares and hens. " * 12, "questions": [question]}
            usage = client.post("/v1/decisions", json=body, headers=authorization(key)).json()["usage"]
            return usage["input_tokens_details"]["cached_tokens"]

        for each in (cached, cached_of_numbers):
            assert each("first") == 0
            assert each("first") > 0
            assert each("second") == 0


def test_names_of_this_server_can_be_told(paced):
    with served_client(paced, allowed_hosts=["box.example"]) as (server, _):

        def status(host):
            sent = f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            return spoken(server.port, sent.encode())[9:12]

        assert status("box.example:80") == status("127.0.0.1") == status("[::1]:1") == b"200"
        for other in ("other.example", "[::1]other.example", "[::1", "127.0.0.1:@other.example", "localhost:other",
                      "::1:80", "", "localhost:80:80"):  # fmt: skip
            assert status(other) == b"403", other


def test_a_header_of_a_body_stands_once_and_what_is_only_read_has_no_other_method(server):
    for twice in (b"Content-Type: text/plain", b"Content-Encoding: gzip"):
        sent = request(b"{}", Content_Encoding="identity").replace(b"Host:", twice + b"\r\nHost:")
        assert spoken(server.port, sent)[9:12] == b"400"
    for path, method in itertools.product(["/", "/openapi.json", "/health"], ["TRACE", "DELETE", "POST", "X"]):
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert spoken(server.port, head.encode())[9:12] in (b"400", b"405"), (method, path)
    for path, allowed in (("/v1/files", "GET, HEAD, POST"), ("/v1/completions", "POST"), ("/api/tags", "GET, HEAD"),
                          ("/v1/files/a", "DELETE, GET, HEAD"), ("/v1/messages", "POST")):  # fmt: skip
        reply = httpx.put(server.address + path, json={})
        assert (reply.status_code, reply.headers.get("allow")) == (405, allowed), path
        assert allowed in reply.text


def test_a_request_beyond_the_queue_is_told_when_to_come_again_and_one_in_it_waits_for_its_turn(paced):
    with served_client(paced, max_requests=1, max_queue=0) as (server, client):
        with connected(server.port) as running:
            running.sendall(posted(LONG))
            assert running.recv(65536).startswith(b"HTTP/1.1 200")
            refused = client.post(COMPLETIONS, json=SHORT)
            assert refused.status_code == 429, refused.text
            assert refused.headers["retry-after"] == "1"
            assert client.get("/health").status_code == 200
        wait_until(lambda: client.post(COMPLETIONS, json=SHORT).status_code == 200, "its place is free")
    with served_client(paced, max_requests=1, max_queue=16) as (_, client), ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.post(COMPLETIONS, json=SHORT).status_code, range(8)))
    assert replies == [200] * 8


def test_a_body_that_never_comes_or_ends_is_refused_and_an_answer_that_takes_too_long_is_ended(paced):
    options = {"body_timeout": 1.0, "max_body_bytes": 10_000, "request_timeout": 0.2}
    with served_client(paced, **options) as (server, client):
        assert spoken(server.port, request(b"{", Content_Length="100")).startswith(b"HTTP/1.1 408")
        chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
        said = spoken(server.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 50)
        assert said.startswith(b"HTTP/1.1 413")
        assert client.post(COMPLETIONS, json={**LONG, "stream": False}).status_code == 408
        wait_until(server.is_idle, "it has ended in the engine, too")


def test_places_change_hands_when_many_connections_come_at_once(paced):
    with served_client(paced, max_connections=2) as (server, _):
        have_come = threading.Event()
        server.loop.call_soon_threadsafe(have_come.wait, 60)  # what comes meanwhile is accepted in one go
        connections = [connected(server.port) for _ in range(6)]
        have_come.set()
        assert [is_closed(connection) for connection in connections[:4]] == [True] * 4
        for connection in connections[4:]:
            connection.sendall(posted(SHORT))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_server_that_closes_lets_answers_end_for_a_time_and_waits_for_nobody_else(paced):
    with served_client(paced) as (server, client):
        idle, slow = connected(server.port), connected(server.port)
        slow.sendall(b"POST /")
        assert client.get("/v1/models").status_code == 200
        with client.stream("POST", COMPLETIONS, json={**LONG, "max_tokens": 20}) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            closing = asyncio.run_coroutine_threadsafe(server.server.close(60), server.loop)
            assert is_closed(idle) and is_closed(slow)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        closing.result(60)
    with served(*paced) as server, connected(server.port) as connection:
        connection.sendall(posted(LONG, Connection="keep-alive"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        asyncio.run_coroutine_threadsafe(server.server.close(0.05), server.loop).result(60)
        assert is_closed(connection), "what is still answered after that time is cut off"
        wait_until(server.is_idle, "it has ended in the engine, too")


def test_the_page_loads_nothing_from_anywhere_else(server):
    page = httpx.get(server.address + "/", timeout=60)
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    for outside in ("<script src", '<link rel="stylesheet', "@import '", '@import "', "@import url", "https://"):
        assert outside not in page.text


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(paced, certificate):
    with served(*paced, **certificate, header_timeout=2.0) as found:
        yield found


def test_a_client_that_knows_the_certificate_is_answered_plain_text_and_old_versions_are_not(secure, certificate):
    assert secure.address.startswith("https://")
    trusting = ssl.create_default_context(cafile=certificate["tls_certificate"])
    with httpx.Client(base_url=secure.address, verify=trusting, timeout=60) as client:
        body = {"prompt": "What is", "max_tokens": 3, "stream": True}
        assert client.get("/health").status_code == 200
        assert client.post("/v1/completions", json=body).text.endswith("data: [DONE]\n\n")
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(secure.address + "/health", timeout=60)
    assert b"200" not in spoken(secure.port, request(b"{}"))
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", secure.port), timeout=60) as plain, pytest.raises(OSError):
        old.wrap_socket(plain)


def test_one_file_without_the_other_and_files_that_cannot_be_used_are_told_at_the_start(certificate):
    with pytest.raises(ConfigError, match="belong together"):
        HttpOptions(tls_certificate=certificate["tls_certificate"])
    for key in ("/nowhere/key.pem", __file__):
        options = HttpOptions(http="127.0.0.1:0", tls_certificate=certificate["tls_certificate"], tls_key=key)
        with pytest.raises(ConfigError, match="can't be used"):
            asyncio.run(HttpServer(object(), options).start())  # nobody gets as far as to ask it for models
