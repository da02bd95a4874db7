"""A line for each request on standard error: what was asked of which model, how it ended; never what users wrote."""

import asyncio
import json
import os
import re
import signal
import string
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from builders.raw_http import connected
from builders.served import served
from builders.watching import wait_until
from hypothesis import given
from hypothesis import strategies as some

from penstock.frontend.http.answers.request_log import Counts, RequestLog, line_of
from penstock.frontend.http.options import HttpOptions
from penstock.protocol.errors import ConfigError

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
SECRET = "xyzzy-secret"
STAND_IN = ["--load-format", "stand-in", "--max-model-len", "256", "--num-gpu-blocks-override", "32"]


def served_lines(tmp_path, *words: str) -> list[str]:
    """What a server in the foreground says, from its first request on, while it is asked the same things."""
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    line = [sys.executable, "-m", "penstock", "serve", "pocket", "--socket", str(folder / "socket"), *STAND_IN]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*line, "--http", "127.0.0.1:0", *words]
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **streams) as server:
        try:
            address = re.search(r"http://\S+", server.stderr.readline())[0]
            lines = []
            while "memory" not in (lines[-1] if lines else ""):  # the end of the table that says it is ready
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
            assert client.post("/v1/completions", json={**body, "prompt": [1, 2, 3], "n": 2, **more}).status_code == 200
        assert client.post("/v1/completions", json={**body, "prompt": SECRET, "n": -1}).status_code == 400
        assert client.post("/v1/completions", json={**body, "prompt": "a", "model": SECRET}).status_code == 404
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


def test_what_log_requests_may_be():
    assert HttpOptions().log_requests == "auto"
    with pytest.raises(ConfigError, match="log_requests='yes' must be auto, on or off"):
        HttpOptions(log_requests="yes")


@given(some.text(max_size=300), some.binary(max_size=300), some.text(max_size=50))
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


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("prompts", [[1, 2, 3], [[1, 2, 3], [4, 5]]])
def test_what_a_request_took_is_told_also_where_nobody_waited_for_its_end(pocket, prompts, is_streamed):
    lines, body = [], {"model": "pocket", "prompt": prompts, "max_tokens": 1900, "ignore_eos": True, "n": 2}
    with served(*pocket, say=lines.append) as server, httpx.Client(base_url=server.address, timeout=30) as client:

        def running() -> list[dict]:
            return [each for each in client.get("/v1/requests").json()["data"] if each["generated_tokens"] > 8]

        with connected(server.port) as leaving:
            sent = json.dumps({**body, "stream": is_streamed}).encode()
            head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}"
            leaving.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n".encode() + sent)
            wait_until(running, 30, "it is being answered")
        wait_until(lambda: lines, 10, "its line is there")
        with ThreadPoolExecutor(1) as thread:
            reply = thread.submit(client.post, "/v1/completions", json={**body, "stream": is_streamed})
            wait_until(running, 30, "the next one is being answered")
            client.delete("/v1/requests/" + running()[0]["id"])
            reply.result(30)
        wait_until(lambda: [line for line in lines if "POST" in line][1:], 10, "its line is there, too")
    num_prompt = 3 if prompts[0] == 1 else 5
    for line in (line for line in lines if "POST" in line):
        counts = re.fullmatch(rf"POST /v1/completions 499 model=pocket in={num_prompt} out=(\d+) .* s", line)
        assert counts and int(counts[1]) > 8, line


def test_nothing_is_said_by_a_server_in_a_program_of_its_own(http, capfd):
    assert http.get("/v1/models").status_code == 200
    assert capfd.readouterr() == ("", "")
