"""`penstock serve`, `start`, `stop`, `reload`, `status`, `ps` and `logs`, as a person types them."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock import LLM, SamplingParams
from penstock.frontend import cli
from penstock.frontend.console import logs

STAND_IN = ["--load-format", "stand-in", "--max-model-len", "256", "--num-gpu-blocks-override", "32"]


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
    assert said("reload", *socket) == (0, "The configuration was read again: nothing changed.\n")
    assert "penstock serves desk" in said("logs", "-n", "100")[1]
    assert said("stop", *socket, "--drain", "0") == (0, "The daemon has ended.\n")
    assert said("stop", *socket)[0] == 1


def test_logs_are_followed_by_whole_lines_and_into_the_next_file(tmp_path, monkeypatch, said):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(tmp_path))
    log = logs.daemon_log()
    log.write_text("before\n")
    half = "later é\n".encode()
    contents = iter((b"before\nat once\n" + half[:7], b"before\nat once\n" + half, None, b"anew\n"))

    def another_look(seconds: float) -> None:
        content = next(contents, b"")
        if content == b"":
            raise KeyboardInterrupt
        log.unlink() if content is None else log.write_bytes(content)

    monkeypatch.setattr("penstock.frontend.commands.logs.time", SimpleNamespace(sleep=another_look))
    assert said("logs", "--follow") == (130, "before\nat once\nlater é\nanew\n")


def test_logs_shows_as_many_lines_as_it_is_asked_for(tmp_path, monkeypatch, said, capsys):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(tmp_path))
    lines = [f"{number} " + "x" * 1000 + "\n" for number in range(2500)]
    logs.daemon_log().write_text("".join(lines))
    for count in (0, 1, 1500, 2499, 9999, 10**30):
        assert said("logs", "-n", str(count)) == (0, "".join(lines[max(0, 2500 - count) :])), count
    for wrong in ("-5", "5k", "", "1.5", "+5", "²"):
        with pytest.raises(SystemExit):
            cli.main(["logs", "-n", wrong])
        assert f"{wrong!r} must be a whole number of lines, 0 or more" in capsys.readouterr().err


def test_logs_says_where_there_is_none(tmp_path, monkeypatch, said):
    monkeypatch.setenv("PENSTOCK_LOG_DIR", str(tmp_path))
    status, text = said("logs")
    assert status == 1 and "No daemon has been in the background here" in text
    monkeypatch.setattr("penstock.frontend.commands.logs.daemon_log", lambda: Path(os.devnull))
    status, text = said("logs")
    assert status == 1 and "Name one in PENSTOCK_LOG_DIR" in text


def test_what_cannot_work_is_said_before_anything_starts(address, tmp_path, said):
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


def test_a_unit_for_systemd_names_this_command_line(said):
    status, text = said("serve", "pocket", "--no-http", "--systemd")
    assert status == 0
    command = shlex.join([sys.executable, "-m", "penstock", "serve", "pocket", "--no-http"])
    assert f"ExecStart={command}\n" in text and "[Install]" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_in_the_foreground_a_signal_ends_it_and_there_is_no_log_of_it(address, number, said):
    daemon = subprocess.Popen(
        [sys.executable, "-m", "penstock", "serve", "pocket", "--lazy", "--socket", address, "--no-http"],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert b" penstock serves pocket" in daemon.stderr.readline()
        daemon.send_signal(signal.SIGHUP)
        while b"was read again" not in (line := daemon.stderr.readline()):
            assert line
        assert line.endswith(b" The configuration was read again: nothing changed.\n")
        status, text = said("status", "--socket", address)
        assert status == 0 and "log      none: it is in the foreground, and says everything to its standard err" in text
        status, text = said("logs", "--socket", address)
        assert status == 1 and f"(process {daemon.pid}) has no log: it is in the foreground" in text
        daemon.send_signal(number)
        assert daemon.wait(60) == 0
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stderr.close()
