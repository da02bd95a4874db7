"""`penstock top` beside a daemon: what it prints for scripts, and its screen for people."""

import http.client
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pexpect
import pytest
from builders.cases import for_each
from builders.daemon import RunningDaemon, models
from builders.starts import python_path
from builders.terminal import Person
from builders.watching import wait_until

from penstock.frontend.commands.daemon.top_figures import HttpSource, Look, figures_of, rows_of
from penstock.frontend.commands.daemon.top_table import MODELS, REQUESTS, sorted_by, table
from penstock.frontend.http.metrics import HttpFigures
from penstock.frontend.replicas.totals import NONE, total
from penstock.protocol.errors import PenstockError
from penstock.protocol.stats import Stats

LONG = {"model": "pocket", "prompt": [5, 6, 7], "max_tokens": 1500, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def slow(start_shared) -> RunningDaemon:
    """A daemon whose answers take their time."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.05")
        return start_shared(models("pocket", "idle"), "--http", "127.0.0.1:0")


@contextmanager
def answering(daemon: RunningDaemon) -> Iterator[str]:
    """While it answers a long request over HTTP; gives the server's address."""
    address = daemon.status().http
    client = httpx.Client(base_url=address, timeout=60)
    with client, client.stream("POST", "/v1/completions", json=LONG) as stream:
        lines = stream.iter_lines()
        next(lines)
        threading.Thread(target=read_on, args=(lines,), daemon=True).start()
        yield address


def read_on(lines: Iterator[str]) -> None:
    # The client closes before the answer is over; a read that waits just then goes on for a minute.
    with suppress(httpx.TransportError):
        for _ in lines:
            pass


@contextmanager
def at_terminal(*words: object, lines: int = 24, columns: int = 130) -> Iterator[Person]:
    names = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": python_path()}
    command = ["-P", "-m", "penstock", "top", "--interval", "0.1", *map(str, words)]
    child = pexpect.spawn(
        sys.executable, command, env=os.environ | names, dimensions=(lines, columns), encoding="utf-8", timeout=60
    )
    person = Person(child, lines, columns)
    try:
        yield person
    finally:
        child.close(force=True)


def test_once_and_json_print_what_a_daemon_or_an_address_does(slow, said):
    with answering(slow) as address:
        for where in (("--socket", slow.address), (address,)):
            status, told = said("top", "--once", "--interval", 0.1, *where)
            heading, first, *rest = told.splitlines()
            assert status == 0 and heading.split()[:4] == ["MODEL", "STATE", "OUT/S", "ROWS"]
            assert first.split()[:2] == ["pocket", "ready"] and int(first.split()[3]) == 1
            assert any(line.startswith("cmpl-") for line in rest), "and the request"
            status, told = said("top", "--json", "--interval", 0.1, *where)
            shown = json.loads(told)
            assert shown["models"][0]["out_per_second"] > 0 and shown["models"][0]["running"] == 1
            assert shown["models"][1] == {**dict.fromkeys(shown["models"][1]), "model": "idle", "state": "unloaded"}
            assert shown["requests"][0]["endpoint"] == "/v1/completions"


def test_the_screen_sorts_fits_any_width_and_stops_the_chosen_request(slow):
    with answering(slow), at_terminal("--socket", slow.address) as person:
        person.sees_text("cmpl-")
        assert any(line.split()[:2] == ["pocket", "ready"] for line in person.lines)
        person.sees_text("q leave")
        person.type("mm")
        person.sees_text("OUT/S*")
        person.type("M")
        person.type("s")
        person.sees_text("OUT*")
        for columns in (40, 12, 3, 130):
            person.resizes(10, columns)
            person.sees(lambda lines, most=columns: lines and max(map(len, lines)) < most)
        person.type("c")
        person.sees_text("Choose a request first")
        person.type("jc")
        person.sees_text("y/n")
        person.type("n")
        person.sees_text("It goes on.")
        person.type("cy")
        person.sees_text("was stopped.")
        wait_until(slow.has_nothing_to_do, "it has ended")
        person.sees_text("no requests of yours")
        person.type("q")
        assert person.sees_end() == 0 and person.left_echo_on


@pytest.mark.long
def test_the_screen_outlives_the_daemon_and_says_so(start):
    daemon = start(models("idle"), "--http", "127.0.0.1:0")
    with at_terminal("--socket", daemon.address) as person:
        person.sees_text("idle")
        os.kill(daemon.status().pid, signal.SIGTERM)
        person.sees_text("Trying again:")
        assert any("idle" in line for line in person.lines), "the last figures stay"
        person.child.sendintr()
        assert person.sees_end() == 0


@for_each("words", (["http://127.0.0.1:9"], ["--socket", "/nowhere/s"], ["ftp://x"], ["http://x:y"], ["http://"]))
def test_an_address_at_which_nobody_listens_is_an_error(words, said):
    for more in (["--once"], ["--json"]):
        status, told = said("top", *words, *more)
        assert status == 1 and told.startswith("penstock: ") and len(told.splitlines()) == 1


@for_each(
    "body", (b"", bytes(range(256)) * 9, b"<html>penstock_steps_total 1</html>", b"vllm:num_requests_running 0\n")
)
def test_a_server_of_another_kind_is_told_from_an_idle_one(said, body, monkeypatch):
    monkeypatch.setattr(HttpSource, "_asked", lambda self, method, path, may_fail=False: body)
    status, told = said("top", "--once", "--interval", 0.1, "http://127.0.0.1:9")
    assert status == 1 and "no server of Penstock's" in told and len(told.splitlines()) == 1


def test_the_path_of_an_address_stands_before_what_is_asked_there(monkeypatch):
    asked = []

    def request(connection, method, path, **more):
        asked.append(path)
        raise OSError

    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    with pytest.raises(PenstockError):
        HttpSource("http://127.0.0.1:9/models/", None).look()
    assert asked == ["/models/metrics"]


def test_without_a_terminal_it_asks_for_once_or_json(said):
    with pytest.raises(SystemExit) as left:
        said("top")
    assert left.value.code == 2
    for wrong in ("0", "x", "nan", "1e9"):
        with pytest.raises(SystemExit):
            said("top", "--once", "--interval", wrong)
    assert said("top", "--once", "http://127.0.0.1:9", "--api-key-file", Path("/nowhere/keys"))[0] == 1


@pytest.mark.long
def test_a_key_is_asked_for_where_one_is_needed(start, said, tmp_path, monkeypatch):
    (keys := tmp_path / "keys").write_text("# a note\nsecret\n")
    daemon = start(models("idle"), "--http", "127.0.0.1:0", "--api-key-file", str(keys))
    address = daemon.status().http
    status, told = said("top", "--once", "--interval", 0.1, address)
    assert status == 1 and "wants an API key" in told
    assert said("top", "--once", "--interval", 0.1, address, "--api-key-file", keys)[0] == 0
    monkeypatch.setenv("PENSTOCK_API_KEY", "secret")
    assert said("top", "--once", "--interval", 0.1, address)[0] == 0
    assert said("top", "--once", "--interval", 0.1, "--socket", daemon.address)[0] == 0


@for_each("ready", (b'{"models": []}', b"nonsense", b"[]"))
def test_a_reply_of_another_form_hides_no_model(ready, monkeypatch):
    replies = {
        "/metrics": b'penstock_steps_total{model="a tree 7b"} 3\n',
        "/ready": ready,
        "/v1/requests": b'{"data": [{}]}',
    }
    monkeypatch.setattr(HttpSource, "_asked", lambda self, method, path, may_fail=False: replies[path])
    look = HttpSource("http://127.0.0.1:9", None).look()
    assert (look.states, look.requests) == ({"a tree 7b": "ready"}, None)


def test_rates_are_differences_and_a_tree_that_began_again_has_none():
    text = 'penstock_steps_total{{model="a\\"b"}} {0}\npenstock_generated_tokens_total{{model="a\\"b"}} {1}\nnonsense\n'
    looks = [Look(at, {'a"b': "ready"}, figures_of(text.format(*counts)), None)
             for at, counts in ((0.0, (5, 10)), (2.0, (9, 30)), (3.0, (1, 4)))]  # fmt: skip
    assert rows_of(looks[0], looks[1])[0].out_per_second == 10
    assert rows_of(looks[1], looks[2])[0].out_per_second is None
    assert rows_of(None, looks[0])[0].out_per_second is None
    rows = rows_of(looks[0], looks[1])
    for width in range(1, 200):
        assert all(len(line) <= width for line in table(MODELS, rows, width))
    text = HttpFigures().text({"p": total([Stats(1, 0, 8, 4, 3, 9, 4, 9, 0), NONE])}, {})
    trees = Look(0.0, {"p": "ready"}, figures_of(text), None)
    assert [row[:3] for row in rows_of(None, trees)] == [
        ("p", None, "ready"), ("p", 0, "ready"), ("p", 1, "restarting")
    ]  # fmt: skip
    assert [line.split("  ")[0].rstrip() for line in table(MODELS, rows_of(None, trees), 200)] == [
        "MODEL", "p", "p tree 0", "p tree 1"
    ]  # fmt: skip
    requests = [{"id": each, "seconds": age, "generated_tokens": 1, "state": "x\x1b", "prompt_tokens": 2, "model": "m",
                 "endpoint": "e"} for each, age in (("b", 1.0), ("a", 9.0))]  # fmt: skip
    assert [each["id"] for each in sorted_by(requests, REQUESTS[1], is_reversed=False)] == ["a", "b"]
    assert [each["id"] for each in sorted_by(requests, REQUESTS[0], is_reversed=True)] == ["b", "a"]
    assert "\x1b" not in "".join(table(REQUESTS, requests, 100))
