"""How a connection speaks HTTP/1.1: one request after another, in whatever pieces they come, on both event loops."""

import asyncio
import json
import socket
import time

import pytest
import uvloop
from builders.answering import answering
from builders.malformed import HEADS
from builders.raw_http import closes_within, connected, heard, replies, request, spoken
from builders.watching import wait_until

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=LOOPS)
def echo(request):
    with answering(LOOPS[request.param], max_body_bytes=10**6) as found:
        yield found


def got(path, *lines, version="1.1", method="GET"):
    return "\r\n".join((f"{method} {path} HTTP/{version}", "Host: x", *lines, "", "")).encode()


def told(reply):
    assert reply.status == 200, reply
    return json.loads(reply.body)


def test_a_request_cut_anywhere_is_the_same_request(echo):
    sent = request(b"hello", "/a") + b"what comes after the last request is dropped"
    whole = spoken(echo.port, sent)
    assert told(replies(whole)[0])["body"] == 5
    for place in range(1, len(sent), 7):
        with connected(echo.port) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(sent[:place])
            connection.sendall(sent[place:])
            assert replies(heard(connection))[0].body == replies(whole)[0].body


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


def test_a_client_that_pipelines_without_end_is_no_longer_read(echo):
    with connected(echo.port) as connection:
        connection.sendall(got("/wait"))
        connection.settimeout(0.2)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 64 << 20:
                sent += connection.send(GET * 1000)
        [held] = echo.context.open.busy
        assert len(held._buffer) < 100_000
        assert echo.application.running == 1
        echo.application.released.set()
        assert replies(until_answered(connection, 5))[4].status == 200
    wait_until(lambda: echo.application.running == 0, 10, "it has ended with its client")
    echo.application.released.clear()


def test_a_body_that_nobody_reads_is_not_read_from_the_network(echo):
    with connected(echo.port) as connection:
        connection.sendall(request(b"", "/early", Content_Length="100000000", Connection="keep-alive"))
        assert b"connection: close" in heard(connection).lower()


def test_an_early_answer_reaches_a_client_that_is_still_sending(echo):
    with connected(echo.port) as connection:
        body = b"x" * 4_000_000
        connection.sendall(request(body, "/early"))
        assert told(replies(heard(connection))[0])["path"] == "/early"


def test_an_answer_of_any_size_arrives_whole(echo):
    for number in (0, 1, 65_535, 65_536, 65_537, 400_000):
        for path in ("/bytes", "/chunks"):
            [reply] = replies(spoken(echo.port, got(f"{path}?n={number}", "Connection: close")))
            assert reply.body == b"x" * number, (path, number, len(reply.body))


def test_answers_to_http_1_0_end_with_the_connection(echo):
    for path in ("/bytes", "/chunks"):
        said = spoken(echo.port, got(f"{path}?n=5", "Connection: keep-alive", version="1.0"))
        assert said.endswith(b"\r\n\r\nxxxxx") and b"transfer-encoding" not in said and b"connection: close" in said


def test_a_head_alone_is_answered_without_a_body(echo):
    said = spoken(echo.port, got("/bytes?n=5", method="HEAD") + got("/chunks?n=5", "Connection: close", method="HEAD"))
    first, second, rest = said.split(b"\r\n\r\n")
    assert b"content-length: 5" in first and b"transfer-encoding" not in second and rest == b""


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(echo):
    with connected(echo.port) as connection:
        head, body = request(b"hello", "/", Expect="100-continue").split(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert told(replies(heard(connection))[0])["body"] == 5
        assert b"100 Continue" not in spoken(echo.port, request(b"hello", "/", Expect="100-continue"))
        assert spoken(echo.port, request(b"", "/early", Content_Length="5", Expect="100-continue"))[9:12] == b"200"


def test_another_protocol_is_not_changed_to(echo):
    for asked in (("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
                  ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")):  # fmt: skip
        first, last = replies(spoken(echo.port, got("/a", *asked) + LAST))
        assert (told(first)["path"], told(last)["path"]) == ("/a", "/last")


def test_headers_are_never_taken_from_trailers(echo):
    sent = CHUNKED + b"2\r\n{}\r\n0\r\nAuthorization: Bearer key\r\nContent-Length: 99\r\nHost: y\r\n\r\n"
    first, last = replies(spoken(echo.port, sent + LAST))
    assert told(first)["headers"] == ["host", "transfer-encoding"] and told(first)["body"] == 2
    assert told(last)["headers"] == ["connection", "host"]


@pytest.mark.parametrize("wrong", HEADS.values(), ids=HEADS)
def test_nothing_behind_a_refused_request_is_answered(echo, wrong):
    sent, status = wrong
    found = replies(spoken(echo.port, sent + GET * 3))
    assert [reply.status for reply in found] == [status], found
    assert json.loads(found[0].body)["error"]["code"] == status


def test_a_body_that_goes_wrong_ends_its_request_and_the_connection(echo):
    for wrong in (b"x\r\n", b"2\r\n{}x", b"0\r\nGET /hidden HTTP/1.1\r\n\r\n", b"f" * 10_000, b"1;" + b"a" * 10_000):
        found = replies(spoken(echo.port, CHUNKED + wrong + GET))
        assert [reply.status for reply in found] == [400], wrong
    wait_until(lambda: echo.application.running == 0, 10, "the applications have heard of it")


def test_a_failing_application_ends_its_request_alone(echo):
    assert replies(spoken(echo.port, got("/fail") + LAST))[0].status == 500
    with connected(echo.port) as connection:
        connection.sendall(got("/break"))  # fewer bytes than it announced
        assert closes_within(connection, 5)
    assert replies(spoken(echo.port, LAST))[0].status == 200


def test_the_application_hears_at_once_that_its_client_is_gone(echo):
    for how in ("close", "half", "reset"):
        with connected(echo.port) as connection:
            connection.sendall(got("/wait"))
            wait_until(lambda: echo.application.running == 1, 10, "it waits")
            if how == "half":
                connection.shutdown(socket.SHUT_WR)
            elif how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if how != "half":
                connection.close()
            wait_until(lambda: echo.application.running == 0, 10, "it has heard of it")
    with connected(echo.port) as connection:  # with some of its answer unread
        connection.sendall(got("/bytes?n=30000000"))
        wait_until(lambda: any(each.has_unread_answer for each in echo.context.open.busy), 10, "it is answered")
        connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: echo.application.running == 0, 10, "it has heard of it")
    with connected(echo.port) as connection:  # in the middle of a body
        connection.sendall(request(b"hello")[:-1])
        wait_until(lambda: echo.application.running == 1, 10, "it reads")
        connection.close()
        wait_until(lambda: echo.application.running == 0 and echo.application.bodies[-1] == -1, 10, "it has heard")


def test_a_client_that_reads_slowly_holds_little_of_its_answer(echo):
    with connected(echo.port) as connection:
        connection.sendall(got("/bytes?n=30000000"))
        wait_until(lambda: any(each.has_unread_answer for each in echo.context.open.busy), 10, "it is sent")
        time.sleep(0.1)
        [held] = echo.context.open.busy
        assert held._transport.get_write_buffer_size() <= 200_000
        number = 0
        while number < 30_000_000 and (piece := connection.recv(1 << 20)):
            number += len(piece)
        assert number >= 30_000_000


def until_answered(connection, number):
    """What was said up to the end of so many answers."""
    said = b""
    while said.count(b"HTTP/1.1 ") <= number and (piece := connection.recv(1000)):
        said += piece
    return said[: said.rindex(b"HTTP/1.1 ")]
