"""Requests as who sent them sees them in a list, where they can be stopped; and as the owner sees them in the log.

A request that runs is shown to its sender and to nobody else. Its line in the log says what was asked of which model
and how it ended, never what users wrote.
"""

import asyncio
import json
import os
import re
import signal
import string
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from builders.cases import for_each
from builders.raw_http import connected, posted
from builders.served import Served, served_client
from builders.starts import python_path
from builders.watching import wait_until
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock.frontend.http.answers.request_log import Counts, RequestLog, line_of
from penstock.frontend.http.options import HttpOptions
from penstock.protocol.errors import ConfigError

SECRET = "xyzzy-secret"
ENDLESS = {"model": "pocket", "ignore_eos": True, "max_tokens": 1900}
COMPLETIONS = "/v1/completions"
BODIES = {
    "/v1/messages": {"messages": [{"role": "user", "content": SECRET}], **ENDLESS},
    "/api/chat": {"messages": [{"role": "user", "content": SECRET}], "model": "pocket",
                  "options": {"ignore_eos": True, "num_predict": 1900}},
    COMPLETIONS: {"prompt": f"{SECRET} What is", **ENDLESS},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": SECRET}], **ENDLESS},
    "/v1/responses": {"model": "pocket", "input": SECRET, "text": {"format": {
        "type": "json_schema", "name": "long", "schema": {
            "type": "array", "minItems": 500, "items": {"type": "integer", "minimum": 1000000}}}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def asking(paced) -> Iterator[tuple[Served, httpx.Client]]:
    with served_client(paced) as found:
        yield found


def listed(client: httpx.Client, beyond: int = -1, **headers: str) -> list[dict]:
    """Those that have more than so many tokens of their answers."""
    found = client.get("/v1/requests", headers=headers).json()["data"]
    return [each for each in found if each["generated_tokens"] > beyond]


@contextmanager
def asked(client: httpx.Client, path: str, headers: dict | None = None, **fields) -> Iterator[Future]:
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(client.post, path, json={**BODIES[path], **fields}, headers=headers)


@for_each("path", BODIES)
@for_each("is_streamed", [False, True])
def test_a_request_is_listed_while_it_runs_and_ends_when_it_is_stopped(asking, path, is_streamed):
    server, http = asking
    with asked(http, path, stream=is_streamed) as reply:
        wait_until(lambda: listed(http, 3), "it is being answered")
        [found] = listed(http)
        assert (found["endpoint"], found["model"], found["state"]) == (path, "pocket", "generating")
        assert found["prompt_tokens"] > 0 and found["seconds"] > 0 and SECRET not in json.dumps(found)
        stopped = http.delete("/v1/requests/" + found["id"])
        assert (stopped.status_code, stopped.json()["stopped"]) == (200, True)
        told = reply.result(60)
    assert told.status_code == (200 if is_streamed else 499)
    assert "was stopped" in told.text
    has_id = is_streamed and not path.startswith("/api/")
    assert found["id"] in told.text or not has_id, "the answer has the id that is listed"
    wait_until(server.is_idle, "the engine has ended it")
    assert listed(http) == []


def test_a_request_that_waits_for_its_place_can_be_stopped(paced):
    with (
        served_client(paced, max_requests=1) as (_, client),
        asked(client, COMPLETIONS) as first,
        asked(client, COMPLETIONS) as second,
    ):

        def ids(state: str) -> list[str]:
            return [each["id"] for each in listed(client) if each["state"] == state]

        wait_until(lambda: len(ids("generating")) == len(ids("waiting")) == 1, "both are listed")
        for waiting in (1, 0):
            [stopped] = ids("waiting" if waiting else "generating")
            client.delete("/v1/requests/" + stopped)
            wait_until(lambda left=waiting: len(listed(client)) == left, "it has ended")
        assert first.result(60).status_code == second.result(60).status_code == 499


def test_a_key_neither_sees_nor_stops_what_another_has_sent(paced, keys):
    first, second = {"Authorization": "Bearer first"}, {"Authorization": "Bearer second"}
    with served_client(paced, **keys) as (_, client):
        assert client.get("/v1/requests").status_code == 401
        assert client.delete("/v1/requests/chatcmpl-1").status_code == 401
        with asked(client, COMPLETIONS, first) as reply:
            wait_until(lambda: listed(client, **first), "it is listed")
            [found] = listed(client, **first)
            assert listed(client, **second) == []
            path = "/v1/requests/" + found["id"]
            refused = client.delete(path, headers=second)
            assert (refused.status_code, refused.json()) == (404, client.delete(path + "0", headers=second).json())
            assert client.delete(path, headers=first).status_code == 200
            assert reply.result(60).status_code == 499


def test_neither_what_is_not_running_nor_by_a_page_of_another_site_can_anything_be_stopped(asking, capfd):
    """A page may send no DELETE without asking first, and nothing here agrees to that; nor may it name another host."""
    http = asking[1]
    for name in ("chatcmpl-0123", "a/b", "%00", "x" * 3000):
        assert http.delete("/v1/requests/" + name).status_code == 404
    wanted = {"Origin": "https://other.example", "Access-Control-Request-Method": "DELETE"}
    agreed = http.options("/v1/requests/chatcmpl-1", headers=wanted)
    assert agreed.status_code == 405
    assert not [name for name in agreed.headers if name.startswith("access-control")]
    for method in ("GET", "DELETE"):
        assert http.request(method, "/v1/requests", headers={"Host": "other.example"}).status_code == 403
    assert capfd.readouterr() == ("", ""), "a server in a program of its own has no log"


# --- the log ---------------------------------------------------------------------------------------------------------

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
STAND_IN = ["--load-format", "stand-in", "--max-model-len", "256", "--num-gpu-blocks-override", "32"]


def served_lines(tmp_path, *words: str) -> list[str]:
    """What a server in the foreground says, from its first request on, while it is asked the same things."""
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    line = [sys.executable, "-m", "penstock", "serve", "pocket", "--socket", str(folder / "socket"), *STAND_IN]
    streams = {
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "env": {**os.environ, "PYTHONPATH": python_path()},
    }
    with subprocess.Popen([*line, "--http", "127.0.0.1:0", *words], text=True, **streams) as server:
        try:
            address = re.search(r"http://\S+", server.stderr.readline())[0]
            lines = []
            while "is ready" not in (lines[-1] if lines else ""):
                lines.append(server.stderr.readline())
            ask_everything(address)
            server.send_signal(signal.SIGINT)
            return server.stderr.read().splitlines()
        finally:
            server.kill()


def ask_everything(address: str) -> None:
    body = {"model": "pocket", "max_tokens": 5, "ignore_eos": True}
    with httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {SECRET}"}) as client:
        messages = [{"role": "user", "content": SECRET}]
        assert client.post("/v1/chat/completions", json={**body, "messages": messages}).status_code == 200
        for more in ({}, {"stream": True}):
            assert client.post(COMPLETIONS, json={**body, "prompt": [1, 2, 3], "n": 2, **more}).status_code == 200
        assert client.post(COMPLETIONS, json={**body, "prompt": SECRET, "n": -1}).status_code == 400
        assert client.post(COMPLETIONS, json={**body, "prompt": "a", "model": SECRET}).status_code == 404
        assert client.get(f"/health?{SECRET}").status_code == 200  # has no line: all is well
        assert client.get("/a%0A2026-11-22T00:00:00.000+00:00%1b[31m", headers={"Host": "localhost"}).status_code == 404
        assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403


def test_each_request_is_a_line_and_holds_no_users_words(tmp_path):
    lines = served_lines(tmp_path)
    assert all(re.match(STAMP, line) for line in lines)
    found = [re.sub(rf"^{STAMP} (.*) \d+\.\d{{3}} s$", r"\1", line) for line in lines]
    assert re.fullmatch(r"POST /v1/chat/completions 200 model=pocket in=\d+ out=5", found[0])
    assert found[1:7] == [
        "POST /v1/completions 200 model=pocket in=3 out=10",
        "POST /v1/completions 200 model=pocket in=3 out=10",
        "POST /v1/completions 400",
        "POST /v1/completions 404",
        "GET /a%0A2026-11-22T00:00:00.000+00:00%1b[31m 404",
        "GET /v1/models 403",
    ]
    assert SECRET not in "\n".join(lines)


@pytest.mark.long
def test_it_can_be_switched_off(tmp_path):
    assert served_lines(tmp_path, "--log-requests", "off") == []
    with pytest.raises(ConfigError, match="log_requests='yes' must be auto, on or off"):
        HttpOptions(log_requests="yes")


@given(some.text(max_size=300), some.binary(max_size=300), some.text(max_size=50))
@settings(max_examples=40)
def test_whatever_a_client_writes_stays_one_line_of_plain_words(method, path, model):
    scope = {"method": method, "raw_path": path, "path": ""}
    line = line_of(scope, model, Counts(1, 2), 200, 0.5)
    assert set(line) <= set(string.printable[:95]) | {"…"} and len(line) < 4000
    assert len(line.split(" ")) == (8 if model else 7)


def test_a_client_that_leaves_before_the_answer_is_told_as_such():
    lines = []

    async def gone(scope, receive, send):
        raise ConnectionError

    log = RequestLog(gone, lines.append)
    with pytest.raises(ConnectionError):
        asyncio.run(log({"type": "http", "method": "GET", "path": "/", "state": {}}, None, None))
    assert lines[0].startswith("GET / 499 ")


@for_each("is_streamed", [False, True])
@for_each("prompts", [[1, 2, 3], [[1, 2, 3], [4, 5]]])
def test_what_a_request_took_is_told_also_where_nobody_waited_for_its_end(paced, prompts, is_streamed):
    lines, fields = [], {"prompt": prompts, "n": 2, "stream": is_streamed}

    def posts() -> list[str]:
        return [line for line in lines if "POST" in line]

    with served_client(paced, say=lines.append) as (server, client):
        with connected(server.port) as leaving:
            leaving.sendall(posted({**BODIES[COMPLETIONS], **fields}))
            wait_until(lambda: listed(client, 8), "it is being answered")
        wait_until(posts, "its line is there")
        with asked(client, COMPLETIONS, **fields) as reply:
            wait_until(lambda: listed(client, 8), "the next one is being answered")
            client.delete("/v1/requests/" + listed(client)[0]["id"])
            reply.result(60)
        wait_until(lambda: posts()[1:], "its line is there, too")
    num_prompt = 3 if prompts[0] == 1 else 5
    for line in posts():
        counts = re.fullmatch(rf"POST /v1/completions 499 model=pocket in={num_prompt} out=(\d+) .* s", line)
        assert counts and int(counts[1]) > 8, line
