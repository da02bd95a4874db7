"""Commands that look at a model or help with the command line: `show`, `tokenize`, `bench`, `completion`, and help."""

import argparse
import subprocess

import pytest
from builders.cases import for_each
from builders.shell import Shell, run_here
from builders.tiny_model import tiny_model

from penstock.frontend import cli
from penstock.frontend.models.model_names import BUNDLED
from penstock.frontend.text.tokenizer import Tokenizer

TEXT = "What is 2 + 3?"


def test_what_a_model_is_is_shown_and_what_keeps_it_from_running_is_the_exit_status(tmp_path):
    done = run_here("show", "pocket")
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert done.returncode == 0 and rows["family"] == "qwen3" and rows["context"] == "32,768 tokens"
    assert "for weights" in rows["memory"] and rows["sampling"] == "temperature=0.0"
    listed = run_here("models", "pocket").stdout.splitlines()[1]
    assert listed.endswith(rows["runs"].removeprefix("here").strip()), "both say the same of its memory"
    (tiny_model(tmp_path / "odd", "llama") / "tokenizer.json").unlink()
    assert run_here("show", tmp_path / "odd").returncode == 1
    tiny_model(tmp_path / "other", "llama")
    assert "holds several models" in run_here("show", tmp_path).stderr


def test_texts_are_shown_as_tokens_and_numbers_as_text():
    tokenizer = Tokenizer.from_pretrained("pocket")
    ids = tokenizer.encode(TEXT)
    shown = run_here("tokenize", "pocket", TEXT).stdout.splitlines()
    assert [int(line.split()[0]) for line in shown[:-1]] == ids and shown[-1] == f"{len(ids)} tokens"
    assert run_here("tokenize", "pocket", "--count", stdin=TEXT).stdout == f"{len(ids)}\n"
    numbers = run_here("tokenize", "pocket", TEXT, "", "--ids").stdout.split("\n")
    assert numbers == [" ".join(map(str, ids)), "", ""]
    assert run_here("tokenize", "pocket", "--decode", numbers[0]).stdout == f"{TEXT}\n"
    chat = tokenizer.apply_chat_template([{"role": "user", "content": TEXT}], tokenize=True)
    assert run_here("tokenize", "pocket", TEXT, "--chat", "--ids").stdout.split() == list(map(str, chat))
    done = run_here("tokenize", "pocket", "--decode", f"{len(tokenizer)}")
    assert done.returncode == 1 and "is no token: they are numbered from 0 to" in done.stderr
    assert "\u202e" not in run_here("tokenize", "pocket", "\u202e").stdout, "nothing steers the terminal"


def test_a_bench_has_a_row_for_one_request_and_for_all(shell: Shell, shell_model):
    words = ("--load-format", "stand-in", "--output-tokens", 3, "--input-tokens", 5, "--requests", 4)
    done = shell.run("bench", shell_model, *words)
    heading, one, four = done.stdout.splitlines()
    assert done.returncode == 0 and heading.split()[0] == "requests"
    assert (one.split()[0], four.split()[0]) == ("1", "4") and one.count(" ms") == 2


@for_each("name", [*cli.COMMANDS, *cli.SYNONYMS])
def test_help_fits_a_screen_and_all_of_it_is_there_where_it_is_asked_for(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = (run_here(name, flag).stdout for flag in ("--help", "--help-all"))
    assert short.count("\n") < 60
    shown = [action for action in cli.parser_of(name)._actions if action.help != argparse.SUPPRESS]
    options = [flag for action in shown for flag in action.option_strings]
    assert all(flag in whole for flag in options)
    if "more options" in short:
        assert f"penstock {name} --help-all" in short and whole.count("\n") > short.count("\n")
    assert run_here("--help").stdout.count("\n") < 60


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    line = f'{script}\nCOMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n_penstock\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    command = ["bash", "-c", line, "bash", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_a_shell_completes_commands_options_and_values():
    bash = run_here("completion", "bash").stdout
    assert {*completed(bash, "penstock", "")} == {*cli.COMMANDS, *cli.SYNONYMS}
    assert completed(bash, "penstock", "generate", "pocket", "--tempe") == ["--temperature"]
    assert completed(bash, "penstock", "generate", "--format", "j") == ["jsonl"]
    assert completed(bash, "penstock", "run", "pock") == [name for name in BUNDLED if name.startswith("pock")]
    for shell in ("zsh", "fish"):
        script = run_here("completion", shell).stdout
        assert all(name in script for name in cli.COMMANDS) and "max-tokens" in script
        if (found := subprocess.run(["which", shell], capture_output=True)).returncode == 0:
            subprocess.run([found.stdout.decode().strip(), "-n"], input=script, text=True, check=True)
    assert run_here("completion", "tcsh").returncode == 2


@pytest.mark.parametrize("word", ["run", "chat"])
def test_run_is_chat(word, shell: Shell, shell_model):
    words = ("--load-format", "stand-in", "--ignore-eos", "--max-tokens", 2)
    assert shell.run(word, shell_model, *words, stdin="hello\n").returncode == 0
