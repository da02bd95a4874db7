"""A script or a daemon whose working folder was removed: it loads models and answers as from anywhere else."""

import os
import shutil

import pytest
from builders.daemon import running_daemon, wait_for
from builders.starts import ANSWERS, STAND_IN, command, run
from builders.watching import tree_processes

from penstock import LLM, SamplingParams
from penstock.frontend.cli import main

REMOVED = "import os, tempfile; folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)\n"
REAL = ANSWERS.replace("'load_format': 'stand-in', ", "")


@pytest.fixture
def removed(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    folder.rmdir()
    yield
    os.chdir(before)


def test_children_run_in_a_folder_that_is_there(removed):
    with LLM("pocket", **STAND_IN, quiet=True) as llm:
        assert {os.readlink(f"/proc/{pid}/cwd") for pid in tree_processes(llm).values()} == {"/"}
        assert llm.generate([[1, 2]], SamplingParams(max_tokens=2), use_tqdm=False)[0].error_code == 200


@pytest.mark.long
def test_a_script_loads_a_real_model():
    """MKL refuses to be loaded there."""
    done = run(REMOVED + REAL)
    assert (done.stdout, done.returncode) == ("3 tokens\n", 0), done.stderr


def test_a_name_that_is_nowhere_is_told_as_always(removed, capsys, monkeypatch, tmp_path):
    for name in ("no/such-model", "./here", "nothing"):
        assert main(["generate", name, "x"]) == 1
        assert f"No model '{name}' was found" in capsys.readouterr().err
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CACHE", "relative")
    monkeypatch.setenv("PENSTOCK_LOG_DIR", "relative")
    assert main(["generate", "pocket", "x", "--load-format", "stand-in"]) == 1
    assert "PENSTOCK_LOG_DIR=relative cannot be used" in capsys.readouterr().err


@pytest.mark.long
def test_every_load_of_a_daemon_works(tmp_path, monkeypatch):
    """It was started in the folder; a model comes, goes and comes again, with a template of the client's."""
    (tmp_path / "s").mkdir()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with running_daemon(tmp_path / "s", "pocket", "--keep-alive", "0", "--max-model-len", "256") as daemon:
        shutil.rmtree(tmp_path / "gone")
        monkeypatch.chdir(tmp_path)
        for _ in range(2):
            with daemon.attach() as llm:
                said = [{"role": "user", "content": "x"}]
                [output] = llm.chat(said, SamplingParams(max_tokens=2), use_tqdm=False, chat_template="{{ messages }}")
                assert output.error_code == 200, output.error_msg
            wait_for(lambda: daemon.model().state == "unloaded", "nobody uses it")


@pytest.mark.long
def test_commands_work(removed, tmp_path):
    assert run(REMOVED + "from penstock.frontend.cli import main; main(['models'])").returncode == 0
    assert command("convert", "pocket", str(tmp_path / "out"), "--quantization", "int8", "--quiet").returncode == 0
    assert LLM(tmp_path / "out", max_model_len=256, quiet=True).close() is None
