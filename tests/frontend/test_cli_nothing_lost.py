"""`penstock generate --output` cut short in every way; and files that are written, like it, only in the end.

What a signal does is tried in this process, which is the command's; a kill and a Ctrl-C on processes of their own too.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.shell import BOUND, SLOW, STAND_IN
from builders.tiny_model import tiny_model
from builders.watching import wait_until

from penstock import LLM, ConfigError
from penstock.frontend import cli
from penstock.protocol.errors import PenstockError

SHORT, LONG = '{"prompt_token_ids": [1, 2], "max_tokens": 3}', '{"prompt_token_ids": [3], "max_tokens": 900}'
FINISHED = 3  # answers that are finished long before the last one


def command(model: Path, *words: object) -> list[str]:
    options = (*STAND_IN, "--max-tokens", 3, "--format", "jsonl")
    return ["generate", *map(str, (model, *options, *words))]


def answers(path: Path) -> dict[object, dict[str, Any]]:
    """By their names, or their numbers; every line must be JSON that anyone can read."""
    records = map(json.loads, path.read_text().splitlines())
    return {record.get("id", record["index"]): record for record in records}


@pytest.fixture
def target(tmp_path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("earlier\n")
    return path


@pytest.fixture
def partial(target) -> Path:
    return target.with_name("answers.jsonl.partial")


def has_lines(partial: Path, count: int) -> Callable[[], bool]:
    return lambda: partial.exists() and partial.read_text().count("\n") == count


@for_each("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_told_to_end_before_any_answer_leaves_nothing(shell, shell_model, tmp_path, number):
    files = []

    def works() -> bool:
        files[:] = tmp_path.iterdir()
        return shell.trees.is_busy()

    words = command(shell_model, "--input", "-", "--output", tmp_path / "answers.jsonl")
    assert shell.interrupted(number, works, *words, stdin=LONG, **SLOW).returncode == 128 + number
    assert files == list(tmp_path.iterdir()) == [], "nor would a kill have left anything"


@for_each("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_keeps_what_it_had_finished(shell, shell_model, tmp_path, number):
    target, partial = tmp_path / "answers.jsonl", tmp_path / "answers.jsonl.partial"
    target.write_text("earlier\n")
    other = '{"prompt": "other", "max_tokens": 2, "id": "second"}'
    words = command(shell_model, "--input", "-", "--output", target)
    prompts = "\n".join((SHORT, other, LONG))
    done = shell.interrupted(number, has_lines(partial, 2), *words, stdin=prompts, **SLOW)
    assert done.returncode == 128 + number and target.read_text() == "earlier\n"
    assert f"The 2 answers that it had finished are kept in {partial}" in done.stderr


def test_where_a_hang_up_is_ignored_as_nohup_has_it_nothing_ends(shell, shell_model, target, partial):
    words = command(shell_model, "--input", "-", "--output", target)
    longer = '{"prompt": "x", "max_tokens": 30}'
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        prompts = f"{SHORT}\n{longer}"
        done = shell.interrupted(signal.SIGHUP, has_lines(partial, 1), *words, stdin=prompts, **SLOW)
    finally:
        signal.signal(signal.SIGHUP, earlier)
    assert done.returncode == 0 and answers(target).keys() == {0, 1}


@pytest.mark.parametrize("number, status", [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 128 + signal.SIGINT)])
def test_a_kill_or_a_ctrl_c_loses_no_answer_and_shows_no_traceback(shell_model, target, partial, number, status):
    words = command(shell_model, "--input", "-", "--output", target)
    call = [sys.executable, "-m", "penstock", *words]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(call, text=True, env={**os.environ, **SLOW}, **pipes) as run:
        try:
            run.stdin.write("\n".join([SHORT] * FINISHED + [LONG]))
            run.stdin.close()
            wait_until(has_lines(partial, FINISHED), "the short answers", BOUND)
            run.send_signal(number)
            assert run.wait(BOUND) == status
            told = run.stderr.read()
        finally:
            run.kill()
    assert str(partial) in told and "Traceback" not in told  # it was said at the start
    assert number == signal.SIGKILL or f"{partial}: move it" in told
    assert target.read_text() == "earlier\n" and answers(partial).keys() == set(range(FINISHED))


# --- a timeline, a recording and answers take the place of no file that is read ---------------------------------------


SMALL = {"max_model_len": 64, "quiet": True, "load_format": "stand-in"}
OPTIONS = ("trace", "record")


@pytest.fixture(scope="module")
def shared_model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("written") / "tiny", "llama")


@pytest.fixture
def model(shared_model, tmp_path) -> Path:
    """Its own names for the same files."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in shared_model.iterdir():
        os.link(path, folder / path.name)
    return folder


def test_files_that_cannot_be_written_are_refused(model, tmp_path):
    one, own = str(tmp_path / "one"), tmp_path / "own.jinja"
    with pytest.raises(ConfigError, match="the same file"):
        LLM(model, trace=one, record=one, **SMALL)
    with pytest.raises(ConfigError, match="trace='.*' cannot be written"):
        LLM(model, trace=str(tmp_path / "missing" / "trace"), **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    own.write_text("{{ messages[0].content }}")
    with pytest.raises(ConfigError, match="the model is read from"):
        LLM(model, chat_template=str(own), trace=str(own), **SMALL)


@for_each("name", ["config.json", "model.safetensors"])
@for_each("option", OPTIONS)
def test_the_models_own_files_are_not_replaced(model, option, name, capsys):
    before = (model / name).read_bytes()
    with pytest.raises(ConfigError, match="the model is read from"):
        LLM(model, **{option: str(model / name)}, **SMALL)
    with pytest.raises(SystemExit):
        cli.main(["generate", str(model), "hi", "--output", str(model / name)])
    assert "the model is read from" in capsys.readouterr().err and (model / name).read_bytes() == before


def test_a_start_that_fails_in_the_worker_costs_no_earlier_file(model, tmp_path, monkeypatch):
    paths = {option: str(tmp_path / option) for option in OPTIONS}
    for path in paths.values():
        Path(path).write_text("earlier\n")
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.start=error")
    with pytest.raises(PenstockError):
        LLM(model, **SMALL, **paths)
    assert all(Path(path).read_text() == "earlier\n" for path in paths.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "record", "trace"]


def test_a_tree_that_is_ready_has_replaced_files_and_written_to_a_device_as_it_is(model, tmp_path):
    paths = {option: tmp_path / option for option in OPTIONS}
    for path in paths.values():
        path.write_text("earlier\n")
        path.chmod(0o640)
    with LLM(model, trace=os.devnull, record=os.devnull, **SMALL) as llm:
        assert llm.generate([[1, 2]], use_tqdm=False) and not Path(os.devnull).is_file()
    with LLM(model, **{option: str(path) for option, path in paths.items()}, **SMALL) as llm:
        llm.generate([[1, 2]], use_tqdm=False)
    assert b'"detokenize"' in paths["trace"].read_bytes() and b"StepPlan" in paths["record"].read_bytes()
    assert all(path.stat().st_mode & 0o777 == 0o640 for path in paths.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "record", "trace"]
