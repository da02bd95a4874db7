"""`penstock generate` as a person and as a pipe meet it: what is asked, what comes as it is made, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pexpect
import pytest
from builders.person import Person
from builders.tiny_model import tiny_model
from builders.watching import wait_until

from penstock.frontend import cli
from penstock.frontend.commands import generate
from penstock.frontend.commands.generation.endings import USUAL_TOKENS
from penstock.frontend.commands.generation.output import output_to
from penstock.frontend.commands.generation.prompts import Row, from_arguments
from penstock.frontend.commands.generation.rendering import Rendering
from penstock.frontend.commands.generation.resumption import Resumption
from penstock.frontend.commands.shared import loading
from penstock.frontend.console import standard_error
from penstock.protocol.errors import ConfigError, PenstockError, RequestError
from penstock.protocol.parameters.sampling import SamplingParams

BOUND = 180  # seconds; a wait never ends a test that passes
SLOW = {"PENSTOCK_FAULTS": "worker.step=delay:0.1"}
QUESTION = [{"role": "user", "content": "one"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("generate") / "tiny", "qwen3")


def words(model: Path | str, *more: object) -> list[str]:
    return ["-m", "penstock", "generate", *map(str, (model, "--load-format", "stand-in", "--ignore-eos", *more))]


def generated(model: Path, *more: object, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    call = [sys.executable, *words(model, "--quiet", *more)]
    return subprocess.run(call, input=stdin, capture_output=True, text=True, timeout=BOUND)


def records(text: str) -> dict[object, dict]:
    """By their names, or their numbers."""
    found = map(json.loads, text.splitlines())
    return {record.get("custom_id", record.get("id", record.get("index"))): record for record in found}


# --- what is asked ----------------------------------------------------------------------------------------------------


class Session:
    """Renders a conversation as the list of its roles; or the content of the last message, if it has parts."""

    config = SimpleNamespace(chat_template=None, seed=0)
    sees = True

    def render_batch(self, conversations, **options):
        last = conversations[0][-1]["content"]
        if isinstance(last, list):
            return [last]
        return [[message["role"] for message in messages] for messages in conversations]


def asked(prompt: object, *, template: str | None = "a template", **options: object) -> object:
    llm = SimpleNamespace(_session=Session(), get_tokenizer=lambda: SimpleNamespace(chat_template=template))
    rendering = Rendering(llm, **{"is_raw": False, "system": None, **options})
    return rendering.prompt(Row(prompt, SamplingParams()))


@pytest.mark.parametrize("prompt", ["one", {"prompt": "one"}])
def test_a_text_is_a_message_to_a_model_with_a_template_and_raw_leaves_it_as_it_is(prompt):
    assert asked(prompt) == ["user"] and asked(prompt, system="Be brief.") == ["system", "user"]
    assert asked(prompt, is_raw=True) == asked(prompt, template=None) == prompt


def test_each_text_has_the_pictures_of_the_command_line_and_a_line_its_own():
    picture, text = {"type": "image", "image": b"a"}, {"type": "text", "text": "one"}
    assert asked("one", images=[b"a"]) == [picture, text] == asked({"prompt": "one"}, images=[b"a"])
    with pytest.raises(ConfigError, match="--image is for a model that sees"):
        asked("one", template=None, images=[b"a"])


@pytest.mark.parametrize("prompt", ["", [1, 2], {"prompt_token_ids": [1]}, {"prompt": "a", "prompt_token_ids": [1]}])
def test_token_ids_are_asked_as_they_are_and_an_empty_text_is_no_message(prompt):
    assert asked(prompt, system="Be brief.") == prompt


def test_a_system_text_needs_a_template():
    with pytest.raises(ConfigError, match="--system is for a model with a chat template"):
        asked("one", template=None, system="Be brief.")


@pytest.mark.parametrize(
    "content, prompt", [(b"one\ntwo\n", "one\ntwo"), (b"one\r\n", "one"), (b"", ""), (b"\xff", None)]
)
def test_a_hyphen_is_all_of_standard_input_as_one_prompt(content, prompt):
    [row] = from_arguments(["-"], SamplingParams(), io.BytesIO(content))
    assert row.prompt == prompt or (prompt is None and isinstance(row.prompt, RequestError))


@pytest.mark.parametrize("more", [["pocket"], ["pocket", "-"], ["pocket", "--input", "-"]])
def test_an_empty_pipe_is_refused_before_a_model_is_loaded(more, monkeypatch, capsys):
    monkeypatch.setattr(generate, "load", lambda *arguments: pytest.fail("a model was loaded"))
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert cli.main(["generate", *more]) == 1
    assert "Standard input is empty, so there is no prompt to answer. Write " in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--raw", "--system", "x"], "--raw leaves prompts as they are"),
        (["--resume"], "it needs --output FILE and --format jsonl"),
        (["--resume", "--format", "jsonl"], "it needs --output FILE and --format jsonl"),
    ],
)
def test_options_that_can_not_go_together_are_named(more, sentence, capsys):
    from penstock.frontend import cli

    with pytest.raises(SystemExit) as end:
        cli.main(["generate", "pocket", "hello", *more])
    assert end.value.code == 2 and sentence in capsys.readouterr().err


def line(name: str, url: str = "/v1/chat/completions", method: str = "POST", **body: object) -> str:
    return json.dumps({"custom_id": name, "method": method, "url": url, "body": body})


FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
LINES = [
    '"one"',
    json.dumps({"messages": QUESTION, "id": "mine"}),
    json.dumps({"messages": [], "id": "empty"}),
    line("one", messages=QUESTION, max_tokens=3, logprobs=True, top_logprobs=2, model="some", n=2),
    line(
        "called",
        messages=QUESTION,
        tools=[{"type": "function", "function": FUNCTION}],
        tool_choice={"type": "function", "function": {"name": "weather"}},
    ),
    line("unknown", messages=QUESTION, colour=1),
    line("wrong", messages=QUESTION, max_tokens="5"),
    line("text", "/v1/completions", prompt=[5, 6], logprobs=1),
    line("elsewhere", "/v1/embeddings", input="x"),
    line("got", method="GET", messages=QUESTION),
]


def test_conversations_and_lines_of_openais_batches_are_answered_each_in_its_form(model):
    done = generated(model, "--input", "-", "--format", "jsonl", "--max-tokens", 4, stdin="\n".join(LINES))
    found = records(done.stdout)
    assert (found[0]["prompt"], found["mine"]["messages"]) == ("one", QUESTION)
    assert found[0]["usage"]["prompt_tokens"] == found["mine"]["usage"]["prompt_tokens"]
    assert "empty" in found["empty"]["error_msg"] and done.returncode == 1

    batch = {name: record for name, record in found.items() if "custom_id" in record}
    assert all(record["error"] is None and record["id"].startswith("batch_req_") for record in batch.values())
    status = {name: record["response"]["status_code"] for name, record in batch.items()}
    refused = {"elsewhere": 404, "got": 405, "unknown": 400, "wrong": 400}
    assert status == {"called": 200, "one": 200, "text": 200, **refused}
    body = {name: record["response"]["body"] for name, record in batch.items()}
    one, text, called = body["one"], body["text"], body["called"]["choices"][0]["message"]
    assert (one["object"], one["model"], len(one["choices"])) == ("chat.completion", "some", 2)
    assert [len(choice["logprobs"]["content"]) for choice in one["choices"]] == [3, 3]
    assert one["usage"]["completion_tokens"] == 6
    assert (text["object"], text["usage"]["prompt_tokens"]) == ("text_completion", 2)
    assert len(text["choices"][0]["logprobs"]["token_logprobs"]) == text["usage"]["completion_tokens"] == 4
    assert called["content"] is None and called["tool_calls"][0]["function"]["name"] == "weather"
    assert "colour" in body["unknown"]["error"]["message"]
    wrong = body["wrong"]["error"]
    assert wrong["message"] == "max_tokens='5': must be a whole number, 1 or more." and wrong["param"] == "max_tokens"


# --- as it comes ------------------------------------------------------------------------------------------------------


def test_a_pipe_gets_one_answer_as_it_is_made(model):
    call = [sys.executable, *words(model, "one", "--quiet", "--max-tokens", 200)]
    running = subprocess.Popen(call, stdout=subprocess.PIPE, env={**os.environ, **SLOW})
    try:
        assert os.read(running.stdout.fileno(), 1) and running.poll() is None
    finally:
        running.terminate()
        assert running.wait(BOUND) == 128 + signal.SIGTERM


def test_several_answers_stand_in_the_order_of_their_prompts_and_each_that_was_cut_is_told(model):
    lines = [json.dumps({"prompt": "one", "max_tokens": number}) for number in (90, 9)]
    longer = [{"prompt": "one", "max_length": 540}, {"prompt": "one", "min_tokens": 530}]
    lines += ['"two"', line("mine", "/v1/completions", prompt=[5], max_tokens=2), *map(json.dumps, longer)]
    done = subprocess.run(
        [sys.executable, *words(model, "--input", "-")],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    headings = [line for line in done.stdout.splitlines() if line.startswith("==>")]
    assert headings == [f"==> {title} <==" for title in (0, 1, 2, "mine", 4, 5)]
    assert f"2 of 6 answers were cut at {USUAL_TOKENS} to 530 tokens; --max-tokens allows more." in done.stderr
    assert "3 of 6 answers were cut at 2 to 90 tokens, the max_tokens that were given." in done.stderr
    assert "1 of 6 answers was cut at the max_length that was given." in done.stderr
    assert done.returncode == 0


def test_a_terminal_is_told_what_is_awaited_and_keeps_words_whole(model):
    call = words(model, "--quiet", "--max-tokens", "80")
    child = pexpect.spawn(
        sys.executable,
        call,
        env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        dimensions=(24, 70),
        encoding="utf-8",
        codec_errors="replace",
        timeout=BOUND,
    )
    person = Person(child, 24, 70)
    person.sees_text("Type prompts, one a line; Ctrl-D on an empty line is the end.")
    before = person.written
    person.type("one\r\x04")
    assert person.sees_end() == 0
    answer = person.written.removeprefix(before)
    assert len(answer) > 40 and answer.endswith("\r\n") and "\x1b[" not in answer


def test_a_terminal_shows_that_a_model_is_loading_and_nothing_of_it_afterwards(monkeypatch):
    ours, theirs = os.openpty()
    shown = b""

    def slow_model(model: str, **options: object) -> str:
        nonlocal shown
        while b"in memory" not in shown:
            shown += os.read(ours, 1000)
        return "the model"

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(loading, "_STEP_SECONDS", 0.01)
    monkeypatch.setattr(loading, "LLM", slow_model)
    with open(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert loading.load("pocket", {}) == "the model"
        standard_error.write_line("ready")
        while b"ready" not in shown:
            shown += os.read(ours, 1000)
    assert b"Loading pocket: 0 s, " in shown and shown.endswith(b"\r\x1b[Kready\r\n")
    os.close(ours)


# --- told to end ------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "answers.jsonl"


def started(model: Path, target: Path, *lines: str, before: str = "", **environment: str) -> "subprocess.Popen[str]":
    call = [sys.executable, *words(model, "--input", "-", "--output", target, "--format", "jsonl")]
    popen = subprocess.Popen(
        [*before.split(), *call],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    popen.stdin.write("\n".join(lines))
    popen.stdin.close()
    return popen


SHORT, LONG = '{"prompt": "short", "max_tokens": 1}', '{"prompt": "long", "max_tokens": 900}'


def or_long(*numbers: signal.Signals) -> list[object]:
    """The first in the quick suite."""
    return [numbers[0], *(pytest.param(number, marks=pytest.mark.long) for number in numbers[1:])]


@pytest.mark.parametrize("number", or_long(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL))
def test_a_run_that_is_told_to_end_before_any_answer_leaves_nothing(model, target, number):
    running = started(model, target, LONG, **SLOW)
    for line in running.stderr:  # it works
        if line.startswith("penstock is ready"):
            break
    running.send_signal(number)
    status = running.wait(BOUND)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("number", or_long(signal.SIGHUP, signal.SIGTERM))
def test_a_run_that_is_told_to_end_keeps_what_it_had_finished_and_goes_on_later(model, target, number):
    prompts = [SHORT, '{"prompt": "other", "max_tokens": 2, "id": "second"}', LONG, "[1, 2", SHORT]
    partial = target.with_name("answers.jsonl.partial")
    running = started(model, target, *prompts[:3], **SLOW)
    wait_until(lambda: partial.exists() and partial.read_text().count("\n") == 2, BOUND, "the short answers")
    running.send_signal(number)
    assert running.wait(BOUND) == 128 + number
    told = running.stderr.read()
    assert f"The 2 answers that it had finished are kept in {partial}" in told and "--resume" in told
    with open(partial, "a") as file:
        file.write('{"index": 2, "promp')  # as a kill may leave it

    call = [*words(model, "--quiet", "--input", "-", "--format", "jsonl")]
    more = [sys.executable, *call, "--output", str(target), "--resume"]
    done = subprocess.run(more, input="\n".join(prompts), capture_output=True, text=True, timeout=BOUND)
    assert "2 answers are there already" in done.stderr and done.returncode == 1
    found = records(target.read_text())
    assert found.keys() == {0, "second", 2, 3, 4} and list(target.parent.iterdir()) == [target]


@pytest.mark.long
def test_a_run_that_went_on_has_made_what_it_would_have_made_at_once(model, target):
    """Sampled answers too."""
    prompts = [f'"prompt {number}"' for number in range(8)]
    call = [*words(model, "--quiet", "--max-tokens", 8, "--format", "jsonl", "--input", "-", "--output", target)]
    run = partial(subprocess.run, input="\n".join(prompts), text=True, timeout=BOUND, check=True)
    run([sys.executable, *call])
    whole = target.read_text().splitlines(keepends=True)
    target.with_name("answers.jsonl.partial").write_text("".join(whole[::2]))
    run([sys.executable, *call, "--resume"])
    before, after = records("".join(whole)), records(target.read_text())
    assert {name: after[name]["outputs"] for name in before} == {name: before[name]["outputs"] for name in before}


@pytest.mark.parametrize("line", ["==> 0 <==", '{"index": 1e999}', '{"outputs": []}', "[]", "5", '{"custom_id": "a"}'])
def test_an_unfinished_file_that_is_no_such_file_is_refused_and_stays(target, line, capsys):
    from penstock.frontend import cli

    partial = target.with_name("answers.jsonl.partial")
    partial.write_text(f"{line}\n")
    call = ["generate", "pocket", "one", "--output", str(target), "--format", "jsonl", "--resume"]
    assert cli.main(call) == 1  # before anything is loaded
    assert "line 1 of the unfinished file is no answer" in capsys.readouterr().err
    assert partial.read_text() == f"{line}\n" and not target.exists()


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()],
    ids=["pipe", "link", "folder"],
)
def test_what_no_run_has_left_is_neither_waited_for_nor_cut(target, make):
    make(target.with_name("answers.jsonl.partial"))
    with pytest.raises(PenstockError, match=r"answers\.jsonl\.partial"):
        output_to(str(target)).resume(lambda line: None)


@pytest.mark.parametrize(
    "prompt, name, is_done",
    [("one", None, True), ("two", None, False), ("one", "a name", False), ([1], None, False)],
)
def test_a_run_goes_on_with_the_same_prompts_only(prompt, name, is_done):
    done = Resumption()
    done.take(b'{"index": 1, "prompt": "one"}\n')
    assert not done.has(0, Row("two", SamplingParams()))
    with nullcontext() if is_done else pytest.raises(PenstockError, match="answers another prompt than the 2. one"):
        assert done.has(1, Row(prompt, SamplingParams(), name))


def test_two_runs_do_not_go_on_in_one_file(target):
    with output_to(str(target)) as output:
        output.write("one\n")
        with pytest.raises(PenstockError, match="is being written by a run that still goes on"):
            output_to(str(target)).resume(lambda line: None)


@pytest.mark.long
def test_nohup_still_means_that_a_hang_up_ends_nothing(model, target):
    running = started(model, target, SHORT, '{"prompt": "x", "max_tokens": 30}', before="nohup", **SLOW)
    partial = target.with_name("answers.jsonl.partial")
    wait_until(partial.exists, BOUND, "the first answer")
    running.send_signal(signal.SIGHUP)
    assert running.wait(BOUND) == 0 and len(records(target.read_text())) == 2
