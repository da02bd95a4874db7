"""The command `penstock` as a shell sees it: options, prompts in, answers out, errors and exit status."""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from builders.tiny_model import tiny_model

import penstock
from penstock import LLM
from penstock.frontend import cli
from penstock.frontend.commands import generate
from penstock.frontend.commands.shared.model_options import with_defaults
from penstock.frontend.commands.shared.options import given
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.parameters.sampling import SamplingParams

BOUND = 60  # seconds; a wait never ends a test that passes


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "tiny"
    tiny_model(folder, "llama")
    return folder


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "penstock", *map(str, words)]


def generated(model: Path, *words: object, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """`penstock generate` on the worker without a model, so that no run waits for torch."""
    call = command("generate", model, "--load-format", "stand-in", "--quiet", "--ignore-eos", "--max-tokens", 3, *words)
    return subprocess.run(call, input=stdin, capture_output=True, text=True, timeout=BOUND)


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    return parser


# --- before anything runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_answer_without_loading_anything(word):
    code = (
        "import sys\nfrom penstock.frontend.cli import main\n"
        f"try: main([{word!r}])\nexcept SystemExit as end: print(end.code, *{{'msgspec', 'torch'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND)
    assert done.stdout.splitlines()[-1].split() == ["0"], done


def test_version_is_the_packages_own(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


@pytest.mark.parametrize("words", [[], ["generat"], ["--nonsense"]])
def test_no_such_command_is_a_wrong_command_line(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert "usage: penstock" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["genrate"], "Did you mean generate?"),
        (["generate"], "the following arguments are required: MODEL\n"),
        (["generate", "pocket", "hi", "--temprature=3"], "--temprature=3. Did you mean --temperature?"),
        (["generate", "pocket", "hi", "--max_tokns", "3"], "Did you mean --max-tokens?"),
        (["generate", "pocket", "hi", "--format", "json"], "must be one of text, jsonl. Did you mean jsonl?"),
        (["generate", "pocket", "hi", "--dtype", "flot16"], "Did you mean float16?"),
        (["generate", "pocket", "hi", "--kv-cache-memory", "-4GiB"], "that begins with - is written --option=VALUE"),
        (["logs", "--lines", "ten"], "'ten' must be a whole number of lines"),
        (["help", "genrate"], "Did you mean generate?"),
        (["--verson"], "and not --verson. Did you mean --version?"),
        (["--model", "pocket"], "The options of a command stand behind it."),
        (["ls"], "'ls' is no command. `penstock models` lists"),
        (["run", "pocket"], "`penstock chat MODEL` talks with a model, `penstock generate MODEL"),
        (["help", "list"], "`penstock models` lists"),
        (["generate", "pocket", "hi", "--num-predict", "3"], "Did you mean --max-tokens?"),
        (["generate", "pocket", "hi", "--ctx-size", "3"], "Did you mean --max-model-len?"),
        (["generate", "pocket", "hi", "--max-model-len", "32k"], "Written out, 32k is 32768 (or 32000)."),
        (["generate", "pocket", "hi", "--max-tokens", "1.5k"], "Written out, 1.5k is 1536 (or 1500)."),
        (["models", "pokt"], "pokt is no folder, no bundled model and none in the hub's cache. Did you mean pocket?"),
    ],
)
def test_a_slip_of_the_hand_is_a_sentence_that_says_what_was_meant(words, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2 and sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["help"], ["help", "help"], ["help", "generate"]])
def test_help_is_a_command_too(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    name = words[-1] if words[-1] != "help" else "COMMAND"
    assert end.value.code == 0 and capsys.readouterr().out.startswith(f"usage: penstock {name} ")


def test_no_command_at_all_shows_the_commands(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([])
    assert end.value.code == 2 and "complete prompts" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["models"], ["help"], ["generate", "--help"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_a_sentence(words, unbuffered):
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            command(*words), stdout=full, stderr=subprocess.PIPE, text=True, timeout=BOUND, env=environment
        )
    assert done.returncode == 1
    assert done.stderr == "penstock: standard output cannot be written: No space left on device.\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_a_command_names_its_usage(name, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: penstock {name}" in capsys.readouterr().out


@pytest.mark.parametrize("struct", [EngineConfig, SamplingParams])
def test_every_field_that_describes_itself_is_an_option(struct, parser):
    described = {field.name for field in msgspec.structs.fields(struct) if hasattr(field.type, "__metadata__")}
    options = {action.dest for action in parser._actions}
    assert described - options <= {"frequence_penalty"}


def test_the_only_name_that_both_kinds_of_options_share_is_the_seed():
    names = [{field.name for field in msgspec.structs.fields(struct)} for struct in (EngineConfig, SamplingParams)]
    assert names[0] & names[1] == {"seed"}


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["--temperature", "0"], {"temperature": 0}),
        (["--top-p", "0.9", "--top-k", "5"], {"top_p": 0.9, "top_k": 5}),
        (["--ignore-eos"], {"ignore_eos": True}),
        (["--no-skip-special-tokens"], {"skip_special_tokens": False}),
        (["--stop", "a b", "--stop", ","], {"stop": ["a b", ","]}),
        (["--stop-token-ids", "1,2", "--stop-token-ids", "3"], {"stop_token_ids": [1, 2, 3]}),
        (["--logit-bias", '{"5": -100}'], {"logit_bias": {"5": -100}}),
        (["--bad-words-ids", "[[1, 2], [3]]"], {"bad_words_ids": [[1, 2], [3]]}),
        ([], {}),
    ],
)
def test_sampling_options_are_read_by_their_types_and_only_those_given(words, wanted, parser):
    assert given(parser.parse_args(["model", *words]), SamplingParams) == wanted
    SamplingParams(**wanted)


@pytest.mark.parametrize(
    "words, wanted",
    [
        (
            ["--max-model-len", "512", "--no-enable-prefix-caching"],
            {"max_model_len": 512, "enable_prefix_caching": False},
        ),
        (["--kv-cache-memory", "4GiB"], {"kv_cache_memory": "4GiB"}),
        (["--devices", "0,1", "--deterministic"], {"devices": [0, 1], "deterministic": True}),
        (["--gpu-memory-utilization", "0.5"], {"gpu_memory_utilization": 0.5}),
    ],
)
def test_engine_options_are_read_by_their_types_and_only_those_given(words, wanted, parser):
    assert given(parser.parse_args(["model", *words]), EngineConfig) == {"model": "model", **wanted}
    EngineConfig.from_options("model", **wanted)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--temperature", "nan"], "temperature=nan: must be a finite number"),
        (["--n", "1000000000"], "n=1000000000: must be 1 to"),
        (["--max-model-len", "long"], "max_model_len='long': must be a whole number"),
        (["--block-size", "7"], "block_size=7: must be one of"),
        (["--logit-bias", "{5"], "'{5' is not JSON"),
        (["--input", "/nowhere/prompts.jsonl"], "/nowhere/prompts.jsonl: No such file"),
        (["a prompt", "--input", "-"], "not both"),
        (["--chaperone"], "unrecognized arguments: --chaperone"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_before_anything_starts(words, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["generate", "/nowhere", *words])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_prompt_in_the_place_of_the_model_is_told_from_one(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["generate", "What is 2 + 2?"])
    assert end.value.code == 2
    assert "'What is 2 + 2?' is no model. Models stand before prompts" in capsys.readouterr().err


def test_help_says_how_long_an_answer_of_the_shells_is(capsys):
    with pytest.raises(SystemExit):
        cli.main(["generate", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "--max-tokens N output tokens at most; unset, and no --max-length: 512" in words


def test_a_model_that_is_nowhere_is_told_with_each_place_on_a_line_of_its_own(capsys):
    assert cli.main(["generate", "/nowhere/at/all", "a prompt"]) == 1
    first, *places = capsys.readouterr().err.splitlines()
    assert first == "penstock: No model '/nowhere/at/all' was found. Tried:"
    assert len(places) == 3 and all(place.startswith("  - ") for place in places)


def test_the_models_own_sampling_defaults_hold_where_nothing_else_was_said(tmp_path):
    tiny_model(tmp_path, "llama")
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_p": 0.5}')
    with LLM(tmp_path, load_format="stand-in", quiet=True) as llm:
        params = with_defaults(llm, {"top_p": 0.75})
    assert (params.temperature, params.top_p) == (0.25, 0.75)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_one_prompt_prints_its_answer_and_nothing_else(model):
    done = generated(model, "--format", "jsonl", "a prompt")
    text = json.loads(done.stdout)["outputs"][0]["text"]
    assert generated(model, "a prompt").stdout == text + "\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_several_answers_stand_under_the_numbers_of_their_prompts(model):
    done = generated(model, stdin="one\n\ntwo\nthree\n")
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("==>")) == [
        "==> 0 <==",
        "==> 1 <==",
        "==> 2 <==",
    ]


def test_samples_of_one_prompt_are_told_apart(model):
    done = generated(model, "a prompt", "--n", 2)
    assert "==> 0, answer 0 <==" in done.stdout
    assert "==> 0, answer 1 <==" in done.stdout


def test_json_lines_come_back_with_number_id_and_what_their_own_parameters_asked_for(model, tmp_path):
    lines = ['{"prompt": "one", "id": "a", "max_tokens": 1}', "", "[1, 2, 3]", '{"prompt": "b", "n": 2, "logprobs": 0}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    done = generated(model, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--format", "jsonl")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    first, second, third = sorted(
        map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()), key=lambda record: record["index"]
    )
    assert (first["id"], first["prompt"], first["usage"]["output_tokens"]) == ("a", "one", 1)
    assert (second["prompt"], second["usage"]["output_tokens"]) == ([1, 2, 3], 3)
    assert [len(sample["logprobs"]) for sample in third["outputs"]] == [3, 3]


def test_a_request_that_fails_is_named_and_the_others_are_answered(model):
    done = generated(model, "--input", "-", "--format", "jsonl", stdin='"good"\n{"prompt_token_ids": [99999999]}\n')
    records = {record["index"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1
    assert records[0]["outputs"][0]["finish_reason"] == "length"
    assert records[1]["error_code"] == 400
    assert "99999999" in records[1]["error_msg"]
    assert done.stderr == "penstock: 1 of 2 prompts failed; the line of each says why.\n"  # quiet as it is


def test_a_failure_between_text_answers_goes_to_stderr(model):
    done = generated(model, "good", "", "also good")
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: prompt 1: ")
    assert done.stdout.count("==>") == 2


# --- cut short --------------------------------------------------------------------------------------------------------


@pytest.fixture
def long_run(model) -> Iterator["subprocess.Popen[str]"]:
    """Has written a short answer, and is far from the end of a long one."""
    lines = '{"prompt": "short", "max_tokens": 1}\n{"prompt": "long", "max_tokens": 900}\n'
    popen = subprocess.Popen(
        command("generate", model, "--load-format", "stand-in", "--quiet", "--ignore-eos", "--input", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_FAULTS": "worker.step=delay:0.1"},
    )
    popen.stdin.write(lines)
    popen.stdin.close()
    assert popen.stdout.readline() == "==> 0 <==\n"
    yield popen
    popen.kill()
    popen.wait(BOUND)


def test_ctrl_c_ends_with_130_and_without_a_traceback(long_run):
    long_run.send_signal(signal.SIGINT)
    assert long_run.wait(BOUND) == 130
    assert long_run.stderr.read() == ""


def test_a_reader_that_has_gone_away_ends_it_quietly(model):
    many = "".join(f"prompt {number}\n" for number in range(2000))
    popen = subprocess.Popen(
        command("generate", model, "--load-format", "stand-in", "--quiet", "--max-tokens", 2),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    popen.stdout.close()
    popen.stdin.write(many)
    popen.stdin.close()
    assert popen.wait(BOUND) == 128 + signal.SIGPIPE
    assert popen.stderr.read() == ""


# --- an interpreter that keeps no docstrings --------------------------------------------------------------------------

EVERY_HELP = """
from contextlib import suppress
from penstock.frontend import cli
for name in cli.COMMANDS:
    with suppress(SystemExit):
        cli.main([name, "--help"])
"""


def test_every_command_works_without_docstrings(model):
    done = subprocess.run([sys.executable, "-OO", "-c", EVERY_HELP], capture_output=True, text=True, timeout=BOUND)
    assert (done.returncode, done.stderr, done.stdout.count("usage: ")) == (0, "", len(cli.COMMANDS))
    assert cli.COMMANDS["generate"] in " ".join(done.stdout.split())
    words = ("-OO", "-m", "penstock", "generate", str(model), "hi", "--load-format", "stand-in", "--max-tokens", "2")
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}  # for its processes too
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=BOUND, env=environment)
    assert done.returncode == 0 and done.stdout and "Traceback" not in done.stderr, done
