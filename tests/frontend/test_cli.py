"""The command `penstock` before it runs anything: options, help, slips of the hand, and what a cut answer is told; and
commands that look at a model: `show`, `tokenize`, `bench`.
"""

import argparse
import os
import subprocess
import sys

import msgspec
import pytest
from builders.cases import for_each
from builders.shell import STAND_IN, Shell, run_here, standard_streams, status_of
from builders.starts import finished
from builders.tiny_model import tiny_model

import penstock
from penstock.frontend import cli
from penstock.frontend.commands import generate
from penstock.frontend.commands.generation.endings import Endings
from penstock.frontend.commands.shared.model_options import with_defaults
from penstock.frontend.commands.shared.options import given
from penstock.frontend.console.command_line import CommandLine
from penstock.frontend.llm import LLM
from penstock.frontend.models.model_names import BUNDLED
from penstock.frontend.rows.prompts import Row, with_usual_limit
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.outputs import CompletionOutput, RequestOutput, Samples
from penstock.protocol.parameters.sampling import SamplingParams


@pytest.fixture
def parser() -> CommandLine:
    parser = CommandLine()
    generate.add_arguments(parser)
    return parser


def test_help_and_version_answer_without_loading_anything():
    code = """
import sys
from penstock.frontend.cli import main
for word in ("--help", "--version"):
    try:
        main([word])
    except SystemExit as end:
        print(end.code, *{"msgspec", "torch"} & set(sys.modules))
"""
    lines = finished([sys.executable, "-c", code]).stdout.splitlines()
    assert lines[-3:] == ["0", f"penstock {penstock.__version__}", "0"], lines


@for_each("words, sentence", [
    ([], "complete prompts"), (["--nonsense"], "usage: penstock"), (["genrate"], "Did you mean generate?"),
    (["generate"], "the following arguments are required: MODEL\n"),
    (["generate", "pocket", "hi", "--temprature=3"], "--temprature=3. Did you mean --temperature?"),
    (["generate", "pocket", "hi", "--max_tokns", "3"], "Did you mean --max-tokens?"),
    (["generate", "pocket", "hi", "--format", "json"], "must be one of text, jsonl. Did you mean jsonl?"),
    (["generate", "pocket", "hi", "--kv-cache-memory", "-4GiB"], "that begins with - is written --option=VALUE"),
    (["logs", "--lines", "ten"], "'ten' must be a whole number of lines"),
    (["help", "genrate"], "Did you mean generate?"),
    (["--verson"], "and not --verson. Did you mean --version?"),
    (["--model", "pocket"], "The options of a command stand behind it."),
    (["ls"], "'ls' is not a command. `penstock models` lists"),
    (["ask", "pocket"], "`penstock chat MODEL` chats with a model, `penstock generate MODEL"),
    (["run", "pocket", "hi"], '`penstock generate pocket "…"` answers one prompt'),
    (["unload", "pocket"], "`penstock stop MODEL` unloads one"),
    (["stop", "pocket", "--drain", "3"], "--drain is for the daemon's end"),
    (["tokenize", "pocket", "4x", "--decode"], "--decode takes numbers such as 15 3 8"),
    (["bench", "pocket", "--requests", "0"], "--requests must be 1 or more"),
    (["generate", "/nowhere", "hi", "--image", __file__], "test_cli.py: This picture is in no format that"),
    (["help", "list"], "`penstock models` lists"),
    (["generate", "pocket", "hi", "--ctx-size", "3"], "Did you mean --max-model-len?"),
    (["generate", "pocket", "hi", "--max-model-len", "32k"], "Written out, 32k is 32768 (or 32000)."),
    (["generate", "/nowhere", "--temperature", "nan"], "temperature=nan: must be a finite number"),
    (["generate", "/nowhere", "--max-model-len", "long"], "max_model_len='long': must be a whole number"),
    (["generate", "/nowhere", "--logit-bias", "{5"], "'{5' is not JSON"),
    (["generate", "/nowhere", "--speculative-config", '{"method" 5}'], "JSON (Expecting ':' delimiter: line 1"),
    (["generate", "/nowhere", "--input", "/nowhere/prompts"], "/nowhere/prompts: No such file"),
    (["generate", "/nowhere", "a prompt", "--input", "-"], "not both"),
    (["generate", "/nowhere", "--chaperone"], "unrecognized arguments: --chaperone"),
    (["generate", "What is 2 + 2?"], "'What is 2 + 2?' is no model. Models stand before prompts"),
    (["generate", "pocket", "hello", "--raw", "--system", "x"], "--raw leaves prompts as they are"),
    (["generate", "pocket", "hello", "--resume"], "generate doesn't resume; `penstock batch IN OUT` does"),
    (["models", "pokt"], "or a model in the hub's cache. Did you mean pocket?"),
])  # fmt: skip
def test_a_mistake_on_the_command_line_is_named_with_what_was_meant_before_anything_starts(words, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2 and sentence in capsys.readouterr().err


FULL = "penstock: standard output cannot be written: No space left on device.\n"


@for_each("words", [["models"], ["help"], ["generate", "--help"], ["--version"]])
@for_each("is_buffered", [True, False])
def test_a_full_disk_behind_standard_output_is_a_sentence(words, is_buffered, tmp_path):
    with open(os.devnull) as nothing, open("/dev/full", "w") as full, open(tmp_path / "said", "w+") as said:
        with standard_streams(nothing.fileno(), full.fileno(), said.fileno(), is_buffered=is_buffered):
            assert status_of(*words) == 1
            if sys.stdout is not None:
                sys.stdout.flush()  # so would the interpreter at its end, and fail if anything were left
        assert (tmp_path / "said").read_text() == FULL


@for_each("name", cli.COMMANDS)
@for_each("is_word", [True, False])
def test_help_of_a_command_names_its_usage(name, is_word, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["help", name] if is_word else [name, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0 and f"usage: penstock {'COMMAND' if (name, is_word) == ('help', True) else name}" in said
    assert name != "generate" or "--max-tokens N maximum output tokens (512, if max_length is unset)" in said


@for_each("struct", [EngineConfig, SamplingParams])
def test_every_field_that_describes_itself_is_an_option(struct, parser):
    described = {field.name for field in msgspec.structs.fields(struct) if hasattr(field.type, "__metadata__")}
    options = {action.dest for action in parser._actions}
    assert described - options <= {"frequence_penalty", "bad_words_token_ids"}
    names = [{field.name for field in msgspec.structs.fields(each)} for each in (EngineConfig, SamplingParams)]
    assert names[0] & names[1] == {"seed"}, "an option that both have"


@for_each("words, sampling, engine", [
    (["--top-p", "0.9", "--top-k", "5"], {"top_p": 0.9, "top_k": 5}, {}),
    (["--ignore-eos", "--no-skip-special-tokens"], {"ignore_eos": True, "skip_special_tokens": False}, {}),
    (["--stop", "a b", "--stop", ","], {"stop": ["a b", ","]}, {}),
    (["--stop-token-ids", "1,2", "--stop-token-ids", "3"], {"stop_token_ids": [1, 2, 3]}, {}),
    (["--logit-bias", '{"5": -100}'], {"logit_bias": {"5": -100}}, {}),
    (["--bad-words-ids", "[[1, 2], [3]]"], {"bad_words_ids": [[1, 2], [3]]}, {}),
    ([], {}, {}),
    (["--no-enable-prefix-caching"], {}, {"enable_prefix_caching": False}),
    (["--kv-cache-memory", "4GiB"], {}, {"kv_cache_memory": "4GiB"}),
    (["--devices", "0,1", "--deterministic"], {}, {"devices": [0, 1], "deterministic": True}),
    (["--deterministic=portable"], {}, {"deterministic": "portable"}),
    (["--deterministic", "portable"], {}, {"deterministic": "portable"}),
    (["--gpu-memory-utilization", "0.5"], {}, {"gpu_memory_utilization": 0.5}),
    (["--speculative-config", "None"], {}, {"speculative_config": None}),
    (["--speculative-config", "false"], {}, {"speculative_config": False}),
    (["--speculative-config", "ngram"], {}, {"speculative_config": "ngram"}),
    (["--speculative-config", '{"method": "ngram"}'], {}, {"speculative_config": {"method": "ngram"}}),
])  # fmt: skip
def test_options_are_read_by_their_types_and_only_those_given(words, sampling, engine, parser):
    arguments = parser.parse_intermixed_args(["model", *words])
    assert given(arguments, SamplingParams) == sampling
    assert given(arguments, EngineConfig) == {"model": "model", **engine}
    SamplingParams(**sampling)
    EngineConfig.from_options("model", **engine)


def test_the_models_own_sampling_defaults_hold_where_nothing_else_was_said(shell, tmp_path):
    tiny_model(tmp_path, "llama")
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_p": 0.5}')
    with shell.trees.in_place(), LLM(tmp_path, load_format="stand-in", quiet=True) as llm:
        params = with_defaults(llm, {"top_p": 0.75})
    assert (params.temperature, params.top_p) == (0.25, 0.75)


@for_each("params, reason, num_tokens, remark", [
    ({}, "length", 512, "the answer was cut at 512 tokens; --max-tokens allows more."),
    ({}, "length", 90, "the answer was cut: the context is full; a larger --max-model-len holds more."),
    ({}, "stop", 512, None),
    ({}, "repetition", 90, "the answer was ended as a repetition; --early-stop '{"),
    ({"min_tokens": 9}, "length", 512, "the answer was cut at 512 tokens; --max-tokens allows more."),
    ({"min_tokens": 900}, "length", 900, "the answer was cut at 900 tokens; --max-tokens allows more."),
    ({"min_length": 900}, "length", 900, "the answer was cut at 900 tokens; --max-tokens allows more."),
    ({"max_tokens": 90}, "length", 90, "the answer was cut at 90 tokens, the max_tokens that were given."),
    ({"max_tokens": 90}, "length", 80, "the answer was cut: the context is full; a larger --max-model-len"),
    ({"max_length": 900}, "length", 890, "the answer was cut at the max_length that was given."),
])  # fmt: skip
def test_a_cut_is_told_with_who_asked_for_it(params, reason, num_tokens, remark):
    endings = Endings()
    ended = ("stop", reason) if reason == "repetition" else (reason, None)
    answer = CompletionOutput(token_ids=[1] * num_tokens, finish_reason=ended[0], stop_reason=ended[1])
    row = with_usual_limit(Row("one", SamplingParams(**params)))
    endings.add(row, RequestOutput("0", None, [1], Samples([answer])))
    remarks = list(endings.remarks())
    assert remarks == [] if remark is None else remarks[0].startswith(remark)


@for_each("name", cli.COMMANDS)
def test_a_command_without_a_docstring_has_its_line_of_the_table(name, monkeypatch):
    monkeypatch.setattr(cli.module_of(name), "__doc__", None)
    assert cli.COMMANDS[name] in " ".join(run_here(name, "--help").stdout.split())


@pytest.mark.long
def test_a_tree_answers_without_docstrings(shell_model):
    words = ["-OO", "-m", "penstock", "generate", str(shell_model), "hi", "--load-format", "stand-in"]
    done = finished([sys.executable, *words, "--max-tokens", "2"], env={**os.environ, "PYTHONOPTIMIZE": "2"})
    assert done.returncode == 0 and done.stdout and "Traceback" not in done.stderr, done


# --- commands that look at a model or help with the command line ------------------------------------------------------


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
    words = ("--output-tokens", 3, "--input-tokens", 5, "--requests", 4)
    done = shell.run("bench", shell_model, *STAND_IN[:2], *words)
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
    """The completions that bash offers for the last word."""
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


def test_run_is_chat(shell: Shell, shell_model):
    assert shell.run("run", shell_model, *STAND_IN, "--max-tokens", 2, stdin="hello\n").returncode == 0
