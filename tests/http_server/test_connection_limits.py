"""Clients that say nothing, or never enough, lose their place: by a timer, or to whoever needs it."""

import os
import resource
import socket
import ssl
import time
from contextlib import ExitStack

import pytest
from builders.cases import for_each
from builders.raw_http import CHUNKED, connected, endless_trailers, heard, is_closed, replies, request, reset, spoken
from builders.served import LOOPS, answering
from builders.watching import wait_until

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HELLO = bytes.fromhex("1603010200010001fc0303")  # how TLS begins

# What a client sends before it falls silent; GET and WAIT are answered first.
SILENT = {
    "nothing": (b"",),
    "an empty line": (b"\r\n",),
    "half a first line": (b"GET / HT",),
    "half a head": (b"GET / HTTP/1.1\r\nHost: x\r\nX: y",),
    "nothing after an answer": (GET, b""),
    "a CR after an answer": (GET, b"\r"),
    "an empty line after an answer": (GET, b"\r\n"),
    "a letter after an answer": (GET, b"G"),
    "half a head after an answer": (GET, GET[:-2]),
    "half a body": (request(b"hello")[:-1],),
    "half a body after an answer": (GET, request(b"hello")[:-1]),
    "half a size of a chunk": (CHUNKED + b"1",),
    "half a chunk": (CHUNKED + b"5\r\nhel",),
    "half a trailer": (CHUNKED + b"0\r\nX: y\r\nZ",),
    "a body that nobody asked for": (request(b"", Expect="100-continue", Content_Length="5"),),
}
# Long enough for a client that is slow because the machine is.
TIMES = dict.fromkeys(("header_timeout", "body_timeout", "idle_timeout", "stall_timeout"), 1.0)


@pytest.fixture(autouse=True)
def shorter_grace(monkeypatch):
    monkeypatch.setattr("penstock.frontend.http.connections.connection._BODY_GRACE_SECONDS", 0.1)
    monkeypatch.setattr("penstock.frontend.http.connections.connection._LINGER_SECONDS", 0.3)


def silent(port, *sent):
    connection = connected(port)
    for number, piece in enumerate(sent):
        connection.sendall(piece)
        if number + 1 < len(sent):
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    return connection


def test_silent_clients_are_shed_in_time():
    with answering(**TIMES) as echo, ExitStack() as held:
        connections = {name: held.enter_context(silent(echo.port, *sent)) for name, sent in SILENT.items()}
        for name, connection in connections.items():
            assert is_closed(connection), name
        wait_until(lambda: len(echo.context.open) == echo.application.running == 0, "nothing is left of them")


# What comes first, and what then comes again and again.
TRICKLES = {
    "empty lines": (b"", b"\r\n"),
    "empty lines after an answer": (GET, b"\r\n"),
    "a header": (b"GET / HTTP/1.1\r\nX: ", b"y"),
    "a header after an answer": (GET + b"GET / HTTP/1.1\r\nX: ", b"y"),
    "headers": (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
    "letters after an answer": (GET, b"G"),
    "a body": (request(b"", Content_Length="1000000"), b"y"),
    "chunks": (CHUNKED, b"1\r\ny\r\n"),
    "an extension": (CHUNKED + b"1;a=", b"y"),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n"),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"y"),
}


def test_bytes_that_trickle_hold_no_place():
    with answering(**TIMES, max_header_bytes=10**6) as echo, ExitStack() as held:
        connections = {name: held.enter_context(silent(echo.port, start)) for name, (start, _) in TRICKLES.items()}
        end = time.monotonic() + 60
        while connections:
            assert time.monotonic() < end, list(connections)
            for name in list(connections):
                try:
                    connections[name].sendall(TRICKLES[name][1])
                except OSError:
                    del connections[name]
            time.sleep(0.01)
        wait_until(lambda: len(echo.context.open) == echo.application.running == 0, "nothing is left of them")


@for_each("loop", LOOPS)
@for_each("sent", SILENT.values(), ids=SILENT)
def test_silent_clients_never_keep_others_out(sent, loop):
    with answering(LOOPS[loop], max_connections=3) as echo, ExitStack() as held:
        for _ in range(4):
            for _ in range(3):
                held.enter_context(silent(echo.port, *sent))
            assert replies(spoken(echo.port, LAST))[0].status == 200
        assert len(echo.context.open) <= 3


def test_the_one_that_waits_longest_goes_first():
    with answering(max_connections=3) as echo, ExitStack() as held:
        sending, first, second = (held.enter_context(silent(echo.port, *SILENT[name])) for name in
                                  ("half a body", "nothing after an answer", "nothing after an answer"))  # fmt: skip
        first.sendall(GET)  # now the second waits longer
        assert first.recv(65536)
        assert replies(spoken(echo.port, LAST))[0].status == 200
        assert is_closed(second)
        held.enter_context(silent(echo.port))
        assert replies(spoken(echo.port, LAST))[0].status == 200
        assert is_closed(first)
        sending.sendall(b"o")  # one that sends its body goes only where nobody waits for a request
        assert replies(heard(sending))[0].status == 200


@for_each("loop", LOOPS)
def test_one_whose_answer_is_on_its_way_never_goes(loop):
    with answering(LOOPS[loop], max_connections=2) as echo, ExitStack() as held:
        computed, sent = held.enter_context(connected(echo.port)), held.enter_context(connected(echo.port))
        computed.sendall(WAIT)
        sent.sendall(b"GET /bytes?n=30000000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wait_until(lambda: len(echo.context.open.busy) == 2, "both are busy")
        for _ in range(3):
            with connected(echo.port) as third:
                assert is_closed(third)
        echo.application.released.set()
        assert computed.recv(65536).startswith(b"HTTP/1.1 200")
        assert sum(map(len, iter(lambda: sent.recv(1 << 20), b""))) > 30_000_000
        assert replies(spoken(echo.port, LAST))[0].status == 200


def test_half_of_the_descriptors_are_left_to_others(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (7, 7))
    with answering(max_connections=1000) as echo, ExitStack() as held:
        for _ in range(10):
            held.enter_context(silent(echo.port, GET, b""))
        assert len(echo.context.open) == 3


@for_each("loop", LOOPS)
def test_a_client_gets_in_where_no_descriptor_is_left(loop):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with answering(LOOPS[loop]) as echo, ExitStack() as held:
        idle = [held.enter_context(silent(echo.port, GET, b"")) for _ in range(3)]
        last = held.enter_context(socket.socket())
        last.settimeout(60)
        try:
            lowest_free = os.dup(0)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            last.connect(("127.0.0.1", echo.port))
            last.sendall(LAST)
            assert replies(heard(last))[0].status == 200
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert is_closed(idle[0])


def test_an_answer_that_nobody_reads_holds_no_place_for_good():
    with answering(**TIMES) as echo:
        for path in ("/bytes", "/chunks"):
            for more in ("Connection: close", "X: y"):
                with connected(echo.port) as connection:
                    connection.sendall(f"GET {path}?n=30000000 HTTP/1.1\r\nHost: x\r\n{more}\r\n\r\n".encode())
                    wait_until(lambda: echo.application.running > 0, "it is answered")
                    wait_until(lambda: len(echo.context.open) == echo.application.running == 0, "it is cut off")
        with connected(echo.port) as connection:  # one that ends its body after the answer has begun
            connection.sendall(request(b"", "/early?n=30000000", Content_Length="5"))
            wait_until(lambda: any(each.has_unread_answer for each in echo.context.open.sending), "it is answered")
            connection.sendall(b"hello")
            wait_until(lambda: len(echo.context.open) == echo.application.running == 0, "it is cut off")


def test_clients_that_never_read_nor_leave_after_a_refusal_or_send_trailers_without_end_are_cut_off():
    with answering(**TIMES) as echo, connected(echo.port) as connection:
        connection.sendall(b"nothing at all\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(1 << 20):  # a gibibyte: more than anybody takes of who was refused
                connection.sendall(b"x" * 1000)
        wait_until(lambda: len(echo.context.open) == 0, "its place is free")
        most = 1 << 33  # no machine sends that much within the time limit
        assert endless_trailers(echo.port, most) < most
        wait_until(lambda: echo.application.running == len(echo.context.open) == 0, "nothing is left of it")


@for_each("sent", [
    GET[:-2] + b"X: " + b"y" * 3000, GET[:-2] + b"X: y\r\n" * 500, b"GET /" + b"a" * 3000,
    GET[:-2] + b"X: " + b"y" * 3000 + b"\r\n\r\n",
    CHUNKED + b"0\r\nX: " + b"y" * 3000, CHUNKED + b"0\r\n" + b"X: y\r\n" * 500,
], ids=["a header", "headers", "a target", "a whole head", "a trailer", "trailers"])  # fmt: skip
def test_heads_and_trailers_have_a_size(sent):
    with answering(max_header_bytes=2000) as echo:
        assert [reply.status for reply in replies(spoken(echo.port, sent + b"\r\n\r\n"))] == [431]


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def context(certificate):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate["tls_certificate"], certificate["tls_key"])
    return made


def spoken_secretly(port, sent):
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with connected(port) as plain, trusting.wrap_socket(plain) as connection:
        connection.sendall(sent)
        return heard(connection)


@for_each("loop", LOOPS)
def test_requests_over_tls_are_answered_one_behind_the_other(context, loop):
    with answering(LOOPS[loop], context) as echo:
        sent = GET * 20 + CHUNKED + b"0\r\n\r\n" + b"GET /bytes?n=300000 HTTP/1.1\r\nHost: x\r\n\r\n" + LAST
        found = replies(spoken_secretly(echo.port, sent))
        assert [reply.status for reply in found] == [200] * 23
        assert len(found[-2].body) == 300_000


@for_each("loop", LOOPS)
def test_a_client_that_leaves_or_falls_silent_in_its_handshake_or_after_it_gives_its_place_back(context, loop):
    with answering(LOOPS[loop], context, header_timeout=600.0) as echo:
        for leave in (socket.socket.close, reset, lambda each: each.shutdown(socket.SHUT_WR)):
            with silent(echo.port, HELLO) as connection:
                wait_until(lambda: len(echo.context.open) == 1, "it is counted")
                leave(connection)
                wait_until(lambda: len(echo.context.open) == 0, "its place is free")
    with answering(LOOPS[loop], context, header_timeout=1.0) as echo:
        for said in (HELLO, b""):
            with silent(echo.port, said) as connection:
                assert is_closed(connection)
        assert spoken_secretly(echo.port, b"GET / HT") == b""
        wait_until(lambda: len(echo.context.open) == 0, "their places are free")


@for_each("loop", LOOPS)
def test_handshakes_never_keep_others_out(context, loop):
    with answering(LOOPS[loop], context, max_connections=3) as echo, ExitStack() as held:
        for said in (b"", HELLO, b"GET / HTTP/1.1\r\n\r\n", b""):
            for _ in range(3):
                held.enter_context(silent(echo.port, said))
            assert replies(spoken_secretly(echo.port, LAST))[0].status == 200
        assert len(echo.context.open) <= 3
