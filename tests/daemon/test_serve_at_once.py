"""`penstock serve` loads what it is told to and ends where it can't; /health, ps, status and logs tell how it does.

And `start`, `stop`, `reload`, `status`, `ps` and `logs`, as a person types them.
"""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pexpect
import psutil
import pytest
from builders.cases import for_each
from builders.daemon import RunningDaemon, models, worker_of
from builders.starts import python_path
from builders.watching import is_running, wait_until

from penstock import LLM, SamplingParams
from penstock.frontend import cli
from penstock.frontend.console import logs
from penstock.frontend.daemon import server
from penstock.frontend.daemon.settings import read_settings
from penstock.protocol.errors import ModelNotFoundError
from penstock.protocol.processes.runtime_directory import daemon_socket

STAND_IN = ["--load-format", "stand-in", "--max-model-len", "256", "--num-gpu-blocks-override", "32"]
HTTP = ["--http", "127.0.0.1:0"]


def ask(address: str, path: str) -> tuple[int, dict]:
    reply = httpx.get(address + path, timeout=60)
    return reply.status_code, reply.json()


@for_each("command, words, sentence", [
    ("start", ["/nosuch"], "nosuch could not be loaded: No model '/nosuch' was found"),
    ("serve", ["desk=./nosuch", "pocket", *STAND_IN], "desk could not be loaded: No model './nosuch' was found"),
])  # fmt: skip
def test_what_cannot_be_loaded_is_a_sentence_and_no_daemon(command, words, sentence, address):
    line = [sys.executable, "-m", "penstock", command, *words, "--socket", str(address), "--no-http"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)
    last = " ".join(done.stderr.partition("penstock: ")[2].split())
    assert done.returncode == 1 and sentence in last and "Traceback" not in done.stderr, done.stderr
    assert "penstock serves" not in done.stderr, "it never said that it would"
    assert not address.exists() and cli.main(["status", "--socket", str(address)]) == 3


def test_a_hub_that_says_nothing_keeps_no_daemon_from_its_start_and_a_wrong_name_waits_for_none(monkeypatch):
    asked, over = [], threading.Event()

    def require_known(model: str, revision: str | None) -> None:
        asked.append(model)
        if model == "wrong":
            raise ModelNotFoundError("No model was found.")
        over.wait(60)

    monkeypatch.setattr(server, "require_known", require_known)
    settings = read_settings(None, ["far/away", "pocket"], {"preload": True}, {}, None)
    monkeypatch.setattr(server, "_CHECK_SECONDS", 1.0)  # as long as threads may take to begin beside other tests
    asyncio.run(server.require_models(settings.models.values()))
    wait_until(lambda: sorted(asked) == ["far/away", "pocket"], "both are looked for, each in a thread of its own")
    settings = read_settings(None, ["far/away", "desk=wrong"], {"preload": True}, {}, None)
    monkeypatch.setattr(server, "_CHECK_SECONDS", 60)
    with pytest.raises(ModelNotFoundError, match="desk could not be loaded: No model was found"):
        asyncio.run(server.require_models(settings.models.values()))
    settings = read_settings(None, ["desk=wrong"], {"preload": False}, {}, None)
    asyncio.run(server.require_models(settings.models.values()))  # nothing is looked for before it is used
    over.set()


def test_lazily_nothing_is_loaded_or_looked_for_before_it_is_used(address, said):
    words = ["desk=pocket", "far=/nosuch", "--lazy", "--socket", address, *STAND_IN, *HTTP]
    assert said("start", *words)[0] == 0
    assert logs.daemon_log(Path(address)) != logs.daemon_log(daemon_socket()), "each address has a log of its own"
    lines = logs.daemon_log(Path(address)).read_text().splitlines()
    stamp, told = next(line for line in lines if "penstock serves desk" in line).split(" ", 1)
    assert told.startswith("penstock serves desk, far at "), "every line of the log has a date"
    assert abs(datetime.now().astimezone() - datetime.fromisoformat(stamp)) < timedelta(minutes=5)
    daemon = RunningDaemon(address)
    assert [daemon.model(name).state for name in ("desk", "far")] == ["unloaded", "unloaded"]
    body = {"status": "ok", "models": {"desk": "unloaded", "far": "unloaded"}}
    assert ask(daemon.status().http, "/health") == (200, body)
    with daemon.attach("desk"):
        assert ask(daemon.status().http, "/health")[1]["models"] == {"desk": "ok", "far": "unloaded"}


def test_health_tells_loading_from_ready_and_the_server_is_alive_all_the_while(start, monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_FAULTS", f"worker.start=until:{tmp_path / 'go'}")
    daemon = start(models("a", more="preload = true"), *HTTP)
    http = daemon.status().http
    status, body = ask(http, "/health")
    assert (status, body["status"], body["models"]) == (503, "loading", {"a": "loading"})
    assert body["error"]["message"] == "Loading a." and body["error"]["code"] == 503
    assert ask(http, "/ping") == (200, {"status": "ok"})
    (tmp_path / "go").touch()
    wait_until(lambda: ask(http, "/health")[0] == 200, "it is loaded")
    assert ask(http, "/health")[1] == {"status": "ok", "models": {"a": "ok"}}


def test_why_a_model_failed_or_died_is_told_by_health_ps_status_and_logs(start, tmp_path, said):
    broken = tmp_path / "some where" / "broken"
    broken.mkdir(parents=True)
    more = f'[models.b]\nmodel = "{broken}"\npreload = true\n'
    daemon = start(models("a", more="preload = true") + more, *HTTP)
    wait_until(lambda: [daemon.model(name).state for name in "ab"] == ["ready", "failed"], "both were tried")
    status, body = ask(daemon.status().http, "/health")
    why = "has no config.json, so it is not a model's folder"
    assert (status, body["status"], body["models"]) == (503, "failed", {"a": "ok", "b": "failed"})
    assert why in body["reasons"]["b"] and "b could not be loaded" in body["error"]["message"]
    assert "some where" not in json.dumps(body), "nobody is told where a model lies"
    assert ask(daemon.status().http, "/ping")[0] == 200
    for command in ("ps", "status"):
        lines = said(command, "--socket", daemon.address)[1].splitlines()
        assert any(line.split()[0].startswith("b") and why in line for line in lines), command
    assert "b could not be loaded" in (told := said("logs", "-n", "50", "--socket", daemon.address)[1]) and why in told
    assert list(body["last_errors"]) == ["b"]
    coming: list[str] = []
    bodies, died = [body], 0.0
    while not coming:  # a busy machine may miss the first restart; the pause before each is longer
        os.kill(worker_of(daemon), signal.SIGKILL)
        bodies = [body]
        while bodies[-1]["models"]["a"] != "ok" or bodies[-1]["last_errors"].get("a", {"time": 0})["time"] <= died:
            bodies.append(ask(daemon.status().http, "/health")[1])
            assert bodies[-1]["status"] in ("failed", "silent") and len(bodies) < 5000
        died = bodies[-1]["last_errors"]["a"]["time"]
        coming = [body["reasons"].get("a", "") for body in bodies if body["models"]["a"] in ("loading", "restarting")]
    assert all("worker 0 process" in reason for reason in coming), "it is told all the while that it loads"
    last = bodies[-1]["last_errors"]["a"]
    assert "worker 0 process" in last["message"] and abs(last["time"] - time.time()) < 120
    assert "a" not in bodies[-1]["reasons"]
    for command in ("ps", "status"):
        assert "worker 0 process" in said(command, "--socket", daemon.address)[1], command


def test_in_the_foreground_of_a_terminal_it_ends_when_that_is_closed(address):
    environment = {**os.environ, "PYTHONPATH": python_path()}
    words = ["-m", "penstock", "serve", "pocket", "--socket", str(address), *STAND_IN, "--no-http"]
    terminal = pexpect.spawn(sys.executable, words, env=environment, encoding="utf-8", timeout=60)
    terminal.expect("penstock is ready")
    pids = [terminal.pid, *(child.pid for child in psutil.Process(terminal.pid).children(recursive=True))]
    terminal.ptyproc.fileobj.close()  # the system sends SIGHUP, as for a window that is closed
    wait_until(lambda: not terminal.isalive() and not any(map(is_running, pids)), "all of its processes have ended")
    assert not address.exists()


# --- commands, as a person types them ---------------------------------------------------------------------------------


def test_a_day_of_a_daemon(address, said):
    socket = ["--socket", address]
    assert said("status", *socket) == (3, f"No daemon listens at {address}. Start one with `penstock start`.\n")
    status, text = said("start", "desk=pocket", *socket, *STAND_IN, "--no-http")
    assert status == 0 and str(address) in text
    status, text = said("start", "other=pocket", *socket, *STAND_IN, "--no-http")
    assert status == 1 and "listens at" in text and "penstock reload" in text
    with LLM("desk", connect=str(address), quiet=True) as llm:
        llm.generate([[1, 2]], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
        _, text = said("ps", *socket)
        heading, row = text.splitlines()
        assert heading.split()[0] == "MODEL" and row.split()[:2] == ["desk", "ready"]
        status, text = said("status", *socket)
        assert status == 0 and "desk (ready)" in text and "clients  1" in text
        status, text = said("stop", "desk", *socket)
        assert status == 1 and "1 client uses desk, so it stays loaded" in text
    wait_until(lambda: said("stop", "desk", *socket) == (0, "desk is unloaded.\n"), "nobody uses desk any more")
    assert "desk (unloaded)" in said("status", *socket)[1]
    assert "serves no model 'dusk'" in said("stop", "dusk", *socket)[1]
    assert said("reload", *socket) == (0, "The configuration was reloaded: nothing changed.\n")
    assert "penstock serves desk" in said("logs", "-n", "100", *socket)[1]
    assert said("stop", *socket, "--drain", "0") == (0, "The daemon has stopped.\n")
    assert said("stop", *socket)[0] == 1


def test_logs_are_followed_by_whole_lines_and_into_the_next_file(tmp_path, monkeypatch, said):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(tmp_path))
    log = logs.daemon_log(daemon_socket())
    log.write_text("before\n")
    half = "later é\n".encode()
    contents = iter((b"before\nat once\n" + half[:7], b"before\nat once\n" + half, None, b"anew\n"))

    def another_look(seconds: float) -> None:
        content = next(contents, b"")
        if content == b"":
            raise KeyboardInterrupt
        log.unlink() if content is None else log.write_bytes(content)

    monkeypatch.setattr("penstock.frontend.commands.daemon.logs.time", SimpleNamespace(sleep=another_look))
    assert said("logs", "--follow") == (130, "before\nat once\nlater é\nanew\n")


def test_logs_shows_as_many_lines_as_it_is_asked_for_or_where_there_are_none(tmp_path, monkeypatch, said, capsys):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(tmp_path))
    status, text = said("logs")
    assert status == 1 and "There is no log of a background daemon" in text
    lines = [f"{number} " + "x" * 1000 + "\n" for number in range(2500)]
    logs.daemon_log(daemon_socket()).write_text("".join(lines))
    for count in (0, 1, 1500, 2499, 9999, 10**30):
        assert said("logs", "-n", str(count)) == (0, "".join(lines[max(0, 2500 - count) :])), count
    for wrong in ("-5", "5k", "", "1.5", "+5", "²"):
        with pytest.raises(SystemExit):
            cli.main(["logs", "-n", wrong])
        assert f"{wrong!r} must be a whole number of lines, 0 or more" in capsys.readouterr().err
    monkeypatch.setattr("penstock.frontend.commands.daemon.logs.daemon_log", lambda address: Path(os.devnull))
    status, text = said("logs")
    assert status == 1 and "Name one in PENSTOCK_LOG_DIR" in text


def test_what_cannot_work_is_said_before_anything_starts_and_a_unit_names_this_command_line(address, tmp_path, said):
    config = tmp_path / "c.toml"
    for text, sentence in {
        "keep_alive = -1": "keep_alive=-1: must be seconds",
        "speed = 3": "there is no setting 'speed'",
        "[models.a]\nblok_size = 3": "Did you mean block_size",
        "models = 3": "models are tables",
        "[models": "not valid TOML",
    }.items():
        config.write_text(text)
        status, told = said("start", "--config", str(config), "--socket", address, "--no-http")
        assert status == 1 and sentence in told, told
    status, told = said("start", "pocket", "pocket", "--socket", address, "--no-http")
    assert status == 1 and "Two models have the name 'pocket'" in told
    status, text = said("serve", "pocket", "--no-http", "--systemd")
    assert status == 0
    command = shlex.join([sys.executable, "-m", "penstock", "serve", "pocket", "--no-http"])
    assert f"ExecStart={command}\n" in text and "[Install]" in text


def test_in_the_foreground_a_signal_ends_it_and_there_is_no_log_of_it(address, said):
    """SIGINT does so, too: tests/http_server/test_running_requests.py."""
    line = [sys.executable, "-m", "penstock", "serve", "pocket", "--lazy", "--socket", address, "--no-http"]
    daemon = subprocess.Popen(line, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": python_path()})
    try:
        assert b" penstock serves pocket" in daemon.stderr.readline()
        daemon.send_signal(signal.SIGHUP)
        while b"was reloaded" not in (line := daemon.stderr.readline()):
            assert line
        assert line.endswith(b" The configuration was reloaded: nothing changed.\n")
        status, text = said("status", "--socket", address)
        assert status == 0 and "log      none: it runs in the foreground, and logs to its standard err" in text
        status, text = said("logs", "--socket", address)
        assert status == 1 and f"(process {daemon.pid}) has no log: it runs in the foreground" in text
        daemon.terminate()
        assert daemon.wait(60) == 0
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stderr.close()
