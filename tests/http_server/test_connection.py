"""How a connection speaks HTTP/1.1: one request after another, in whatever pieces they come, on both event loops.

And which connection gives way where all places are taken.
"""

import asyncio
import json
import socket
import threading
from contextlib import ExitStack
from unittest.mock import Mock

import pytest
from builders.cases import for_each
from builders.raw_http import HEADS, connected, heard, is_closed, replies, request, reset, spoken
from builders.served import LOOPS, answering
from builders.watching import wait_until

from penstock.frontend.http.connections.open_connections import OpenConnections
from penstock.frontend.http.connections.request_head import END

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def echoes():
    with ExitStack() as stack:
        yield {name: stack.enter_context(answering(loop, max_body_bytes=10**6)) for name, loop in LOOPS.items()}


def on_both_loops(test):
    @for_each("loop", LOOPS)
    def on_one(echoes, loop):
        test(echoes[loop])

    return on_one


def got(path, *lines, version="1.1", method="GET"):
    return "\r\n".join((f"{method} {path} HTTP/{version}", "Host: x", *lines, "", "")).encode()


def told(reply):
    assert reply.status == 200, reply
    return json.loads(reply.body)


def wait_until_read(echo, num_bytes):
    """Wait until the server holds these bytes of a head that is not complete."""
    held = echo.context.open.all
    wait_until(lambda: num_bytes in [len(each._buffer) for each in held()], f"{num_bytes} bytes are read")


@on_both_loops
def test_a_request_cut_anywhere_is_the_same_request(echo):
    sent = request(b"hello", "/a") + b"what comes after the last request is dropped"
    whole = spoken(echo.port, sent)
    assert told(replies(whole)[0])["body"] == 5
    end_of_head = sent.index(END) + len(END)
    for place in sorted({*range(1, len(sent), 7), *range(end_of_head - 4, end_of_head + 1)}):
        with connected(echo.port) as connection:
            connection.sendall(sent[:place])
            if place < end_of_head:
                wait_until_read(echo, place)
            connection.sendall(sent[place:])
            assert replies(heard(connection))[0].body == replies(whole)[0].body


@on_both_loops
def test_pipelined_requests_are_answered_in_their_order_one_at_a_time(echo):
    sent = b"".join(
        got(f"/{number}") if number % 3 else CHUNKED + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n\r\n" for number in range(500)
    )
    echo.application.most_running = 0
    found = [told(reply) for reply in replies(spoken(echo.port, sent + LAST))]
    asked = [(f"/{number}", 0) if number % 3 else ("/", 3) for number in range(500)]
    assert [(each["path"], each["body"]) for each in found] == [*asked, ("/last", 0)]
    # The former may still be leaving when the next one begins.
    assert echo.application.most_running <= 2


@on_both_loops
def test_a_client_that_pipelines_without_end_is_no_longer_read(echo):
    with connected(echo.port) as connection:
        connection.sendall(got("/wait"))
        wait_until(lambda: echo.application.running == 1, "it waits")
        [held] = echo.context.open.busy
        connection.setblocking(False)
        sent = unread = 0
        while unread < 100:  # the server has had its turn at what was sent, and left it where it was
            try:
                sent += connection.send(GET * 1000)
                unread = 0
            except BlockingIOError:
                unread += 1
                on_loop(echo, 1)
            assert sent < 64 << 20
        assert len(held._buffer) < 100_000
        assert echo.application.running == 1
        echo.application.released.set()
        connection.settimeout(60)
        assert replies(until_answered(connection, 5))[4].status == 200
    wait_until(lambda: echo.application.running == 0, "it has ended with its client")
    echo.application.released.clear()


@on_both_loops
def test_an_early_answer_reaches_a_client_that_is_still_sending_and_a_body_that_nobody_reads_is_not_read(echo):
    with connected(echo.port) as connection:
        body = b"x" * 4_000_000
        connection.sendall(request(body, "/early"))
        assert told(replies(heard(connection))[0])["path"] == "/early"
    with connected(echo.port) as connection:
        connection.sendall(request(b"", "/early", Content_Length="100000000", Connection="keep-alive"))
        assert b"connection: close" in heard(connection).lower()


@on_both_loops
def test_an_answer_of_any_size_arrives_whole_that_to_http_1_0_with_the_end_and_that_to_head_without_a_body(echo):
    for number in (0, 1, 65_535, 65_536, 65_537, 400_000):
        for path in ("/bytes", "/chunks"):
            [reply] = replies(spoken(echo.port, got(f"{path}?n={number}", "Connection: close")))
            assert reply.body == b"x" * number, (path, number, len(reply.body))
    for path in ("/bytes", "/chunks"):
        said = spoken(echo.port, got(f"{path}?n=5", "Connection: keep-alive", version="1.0"))
        assert said.endswith(b"\r\n\r\nxxxxx") and b"transfer-encoding" not in said and b"connection: close" in said
    said = spoken(echo.port, got("/bytes?n=5", method="HEAD") + got("/chunks?n=5", "Connection: close", method="HEAD"))
    first, second, rest = said.split(b"\r\n\r\n")
    assert b"content-length: 5" in first and b"transfer-encoding" not in second and rest == b""


@on_both_loops
def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(echo):
    with connected(echo.port) as connection:
        head, body = request(b"hello", "/", Expect="100-continue").split(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert told(replies(heard(connection))[0])["body"] == 5
        assert b"100 Continue" not in spoken(echo.port, request(b"hello", "/", Expect="100-continue"))
        assert spoken(echo.port, request(b"", "/early", Content_Length="5", Expect="100-continue"))[9:12] == b"200"


@on_both_loops
def test_another_protocol_is_not_changed_to_and_headers_are_never_taken_from_trailers(echo):
    for asked in (("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
                  ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")):  # fmt: skip
        first, last = replies(spoken(echo.port, got("/a", *asked) + LAST))
        assert (told(first)["path"], told(last)["path"]) == ("/a", "/last")
    sent = CHUNKED + b"2\r\n{}\r\n0\r\nAuthorization: Bearer key\r\nContent-Length: 99\r\nHost: y\r\n\r\n"
    first, last = replies(spoken(echo.port, sent + LAST))
    assert told(first)["headers"] == ["host", "transfer-encoding"] and told(first)["body"] == 2
    assert told(last)["headers"] == ["connection", "host"]


@on_both_loops
def test_nothing_behind_a_refused_request_or_a_body_that_goes_wrong_is_answered(echo):
    for name, (sent, status) in HEADS.items():
        found = replies(spoken(echo.port, sent + GET * 3))
        assert [reply.status for reply in found] == [status], (name, found)
        assert json.loads(found[0].body)["error"]["code"] == status, name
    for wrong in (b"x\r\n", b"2\r\n{}x", b"0\r\nGET /hidden HTTP/1.1\r\n\r\n", b"f" * 10_000, b"1;" + b"a" * 10_000):
        found = replies(spoken(echo.port, CHUNKED + wrong + GET))
        assert [reply.status for reply in found] == [400], wrong
    wait_until(lambda: echo.application.running == 0, "the applications have heard of it")


@on_both_loops
def test_a_failing_application_ends_its_request_alone(echo):
    assert replies(spoken(echo.port, got("/fail") + LAST))[0].status == 500
    with connected(echo.port) as connection:
        connection.sendall(got("/break"))  # fewer bytes than it announced
        assert is_closed(connection)
    assert replies(spoken(echo.port, LAST))[0].status == 200


@on_both_loops
def test_the_application_hears_at_once_that_its_client_is_gone(echo):
    for how in ("close", "half", "reset"):
        with connected(echo.port) as connection:
            connection.sendall(got("/wait"))
            wait_until(lambda: echo.application.running == 1, "it waits")
            if how == "half":
                connection.shutdown(socket.SHUT_WR)
            elif how == "reset":
                reset(connection)
            else:
                connection.close()
            wait_until(lambda: echo.application.running == 0, "it has heard of it")
    with connected(echo.port) as connection:  # with some of its answer unread
        connection.sendall(got("/bytes?n=30000000"))
        wait_until(lambda: any(each.has_unread_answer for each in echo.context.open.busy), "it is answered")
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: echo.application.running == 0, "it has heard of it")
    with connected(echo.port) as connection:  # in the middle of a body
        connection.sendall(request(b"hello")[:-1])
        wait_until(lambda: echo.application.running == 1, "it reads")
        connection.close()
        wait_until(lambda: echo.application.running == 0 and echo.application.bodies[-1] == -1, "it has heard")


@on_both_loops
def test_a_client_that_reads_slowly_holds_little_of_its_answer(echo):
    with connected(echo.port) as connection:
        connection.sendall(got("/bytes?n=30000000"))
        wait_until(lambda: any(each.has_unread_answer for each in echo.context.open.busy), "it is sent")
        [held] = echo.context.open.busy
        assert held._transport.get_write_buffer_size() <= 200_000
        number = 0
        while number < 30_000_000 and (piece := connection.recv(1 << 20)):
            number += len(piece)
        assert number >= 30_000_000


def on_loop(echo, rounds):
    for _ in range(rounds):
        done = threading.Event()
        echo.loop.call_soon_threadsafe(done.set)
        assert done.wait(60)


def until_answered(connection, number):
    said = b""
    while said.count(b"HTTP/1.1 ") <= number and (piece := connection.recv(1000)):
        said += piece
    return said[: said.rindex(b"HTTP/1.1 ")]


# --- who gives way ---------------------------------------------------------------------------------------------------


def gave_way(waiting, sending, unread):
    """Which of those that have waited so many seconds for a request, or for a body; some have an unread answer."""

    async def run():
        def connection(has_unread_answer):
            return Mock(has_unread_answer=has_unread_answer)

        everyone, now = OpenConnections(len(waiting) + len(sending)), 0.0
        everyone._clock = lambda: now
        ages = [(age, "waiting") for age in waiting] + [(age, "sending") for age in sending]
        connections = {}
        for age, group in sorted(ages, reverse=True):
            now, entered = -age, connection(age in unread)
            connections[entered] = (group, age)
            assert everyone.enter(entered)
            everyone.move(entered, getattr(everyone, group))
        now = 0.0
        assert everyone.enter(connection(False))
        return [what for each, what in connections.items() if each.abort.called]

    return asyncio.run(run())


@for_each("waiting, sending, unread, goes", [
    ([5, 3], [9], [], ("waiting", 5)),
    ([0.1], [9, 3], [], ("sending", 9)),  # it is about to ask
    ([0.1, 0.2], [0.5], [], ("waiting", 0.2)),
    ([], [3, 0.1], [], ("sending", 3)),
    ([5, 3], [], [5], ("waiting", 3)),
])  # fmt: skip
def test_who_is_about_to_ask_or_to_read_an_answer_does_not_give_way_to_who_never_ends(waiting, sending, unread, goes):
    assert gave_way(waiting, sending, unread) == [goes]
