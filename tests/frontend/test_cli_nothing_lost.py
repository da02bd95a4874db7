"""`penstock generate --output` cut short in every way, and lines that are no requests: over the real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from builders.tiny_model import tiny_model
from builders.watching import wait_until

BOUND = 60  # seconds; a wait never ends a test that passes
SHORT = 3  # answers that are finished long before the last one


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "tiny"
    tiny_model(folder, "llama")
    return folder


def command(model: Path, *words: object) -> list[str]:
    options = ("--load-format", "stand-in", "--ignore-eos", "--max-tokens", 3, "--format", "jsonl")
    return [sys.executable, "-m", "penstock", "generate", *map(str, (model, *options, *words))]


def answers(path: Path) -> dict[int, dict]:
    """By their number; every line must be JSON that anyone can read."""
    return {record["index"]: record for record in map(json.loads, path.read_text().splitlines())}


# --- cut short --------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("earlier\n")
    return path


@pytest.fixture
def partial(target) -> Path:
    return target.with_name("answers.jsonl.partial")


@pytest.fixture
def long_run(model, target, partial) -> Iterator["subprocess.Popen[str]"]:
    """Has finished short answers, and is far from the end of a long one."""
    lines = ["[1, 2]"] * SHORT + ['{"prompt_token_ids": [3], "max_tokens": 900}']
    popen = subprocess.Popen(
        command(model, "--input", "-", "--output", target),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_FAULTS": "worker.step=delay:0.05"},
    )
    popen.stdin.write("\n".join(lines))
    popen.stdin.close()
    wait_until(lambda: partial.exists() and partial.read_text().count("\n") == SHORT, BOUND, "the short answers")
    yield popen
    popen.kill()
    popen.wait(BOUND)


def child(popen: "subprocess.Popen[str]", role: str) -> int:
    children = psutil.Process(popen.pid).children()
    return next(process.pid for process in children if f"penstock.{role}" in " ".join(process.cmdline()))


def test_a_kill_of_the_command_loses_no_answer(long_run, target, partial):
    long_run.kill()
    assert long_run.wait(BOUND) == -signal.SIGKILL
    assert target.read_text() == "earlier\n" and answers(partial).keys() == set(range(SHORT))
    assert str(partial) in long_run.stderr.read()  # it was said at the start


@pytest.mark.long  # what a death hands on is held by tests/tree/test_any_prompt.py
@pytest.mark.parametrize("role", ["worker", "engine", "frontend.text.detokenizer"])
def test_a_kill_of_a_process_behind_it_loses_no_answer(long_run, target, partial, role):
    os.kill(child(long_run, role), signal.SIGKILL)
    assert long_run.wait(BOUND) == 1
    told = long_run.stderr.read()
    assert f"The {SHORT} answers that it had finished are kept in {partial}" in told and "SIGKILL" in told
    assert target.read_text() == "earlier\n" and answers(partial).keys() == set(range(SHORT))


def test_ctrl_c_loses_no_answer(long_run, target, partial):
    long_run.send_signal(signal.SIGINT)
    assert long_run.wait(BOUND) == 128 + signal.SIGINT
    assert f"{partial}: move it" in long_run.stderr.read()
    assert target.read_text() == "earlier\n" and answers(partial).keys() == set(range(SHORT))


@pytest.mark.long
def test_a_full_disk_loses_no_answer_before_it(model, target, partial):
    """A limit on the size of files stands in for it; it counts for the processes behind the command, too."""
    line = " ".join(command(model, "--input", "-", "--output", target, "--quiet"))
    many = "\n".join(f'"prompt {number}"' for number in range(2000))
    done = subprocess.run(
        f"ulimit -f 64; {line}", shell=True, executable="/bin/bash", input=many, capture_output=True, text=True,
        timeout=BOUND,
    )  # fmt: skip
    assert done.returncode == 1 and "File too large" in done.stderr, done
    kept = answers(partial)
    assert f"The {len(kept):,} answers" in done.stderr and len(kept) > 100
    assert target.read_text() == "earlier\n"


# --- lines that are no requests ---------------------------------------------------------------------------------------

DEEP = b"[" * 100_000
# Line → what is said of it.
HARD = {
    b'{"prompt": 5}': "must be text, not int",
    b'{"prompt": ["a"]}': "must be text, not list",
    b'{"prompt_token_ids": "12"}': "whole numbers",
    b'["a"]': "whole numbers",
    b"[true]": "whole numbers",
    b"[1.5]": "whole numbers",
    b'["a", 100000000000000000000]': "whole numbers",
    b"[100000000000000000000]": "vocabulary",
    b'"\\ud800"': "half a surrogate pair",
    b'{"prompt": "x", "id": "\\udfff"}': "half a surrogate pair",
    b'"\xff\xfe"': "is not UTF-8: byte 2 of it is 0xff",
    DEEP: "nested too deep",
    b'{"a":' * 100_000: "nested too deep",
    b'{"prompt": "x", "guided_json": {"a": ' + DEEP[:5000] + b"]" * 5000 + b"}}": "nested too deep",
    b"NaN": "NaN is no number",
    b'{"prompt": "x", "temperature": -Infinity}': "-Infinity is no number",
    b'{"prompt": "x", "id": 1e999}': "1e999, which is too large",
    b"9" * 5000: "too many digits",
    b'{"prompt": "a", "prompt": "b"}': "the key 'prompt' twice",
    b'{"prompt": "a", "id": []}': "an `id` that is neither",
    b'{"prompt": "a", "colour": 1}': "'colour' is neither",
    b'{"prompt": "a", "stop": 5}': "stop=5",
    b"null": "neither a text",
    b'"nul\0"': "not JSON: Invalid control character at character 5",
    b'"unfinished': "not JSON",
    b"{}": "needs `prompt`",
}


def test_a_line_that_is_no_request_fails_alone_in_its_place(model, tmp_path):
    lines = [line for hard in HARD for line in (hard, b'\xef\xbb\xbf"good"\r', b"")]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines).rstrip())  # without an end of the last line
    words = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--quiet")
    done = subprocess.run(command(model, *words), capture_output=True, text=True, timeout=BOUND)
    told = f"penstock: {len(HARD)} of {2 * len(HARD)} prompts failed; the line of each says why.\n"
    assert (done.returncode, done.stderr, done.stdout) == (1, told, "")
    records = answers(tmp_path / "out.jsonl")
    assert len(records) == 2 * len(HARD)
    for number, sentence in enumerate(HARD.values()):
        failed, good = records[2 * number], records[2 * number + 1]
        assert failed["error_code"] == 400 and sentence in failed["error_msg"], (sentence, failed)
        assert "error_code" not in good and good["prompt"] == "good"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.long
def test_lines_of_text_fail_alone_too(model, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbfone\r\n\n\xff\nt\0wo\nlast")
    with open(tmp_path / "in.txt") as lines:
        done = subprocess.run(command(model, "--quiet", "\udcff"), stdin=lines, capture_output=True, timeout=BOUND)
        assert done.returncode == 1 and b"not UTF-8" in done.stdout  # of an argument
        done = subprocess.run(command(model, "--quiet"), stdin=lines, capture_output=True, text=True, timeout=BOUND)
    records = {record["index"]: record for record in map(json.loads, done.stdout.splitlines())}
    assert [records[number]["prompt"] for number in (0, 2, 3)] == ["one", "t\0wo", "last"]
    assert records[1]["error_msg"] == "Line 3 is not UTF-8: byte 1 of it is 0xff." and done.returncode == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_file_in_utf_16_is_named_before_anything_starts(tmp_path, encoding, capsys):
    from penstock.frontend import cli

    text = '"one"\n"two"\n' if encoding == "utf-16" else '\ufeff"one"\n'
    (tmp_path / "in.jsonl").write_bytes(text.encode(encoding))
    (tmp_path / "out.jsonl").write_text("earlier\n")
    words = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl"), "--quiet"]
    assert cli.main(["generate", "pocket", *words]) == 1
    assert "in.jsonl is written in UTF-16" in capsys.readouterr().err
    assert (tmp_path / "out.jsonl").read_text() == "earlier\n"


@pytest.mark.long
def test_a_line_of_a_hundred_megabytes_fails_alone_and_is_not_held(model, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b'"one"\n"' + b"x" * 100_000_000 + b'"\n"two"\n')
    words = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--quiet")
    line = " ".join(command(model, *words))
    done = subprocess.run(f"ulimit -v 4194304; {line}", shell=True, executable="/bin/bash", timeout=BOUND)
    assert done.returncode == 1
    records = answers(tmp_path / "out.jsonl")
    assert "Line 2 has more than 64 MiB" in records[1]["error_msg"] and records[2]["prompt"] == "two"
