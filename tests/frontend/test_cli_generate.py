"""`penstock generate`: what is asked of the model, and how answers come back."""

import io
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from builders.batch_input import line
from builders.cases import for_each
from builders.shell import BOUND, SLOW, STAND_IN

from penstock.frontend import cli
from penstock.frontend.commands import generate
from penstock.frontend.commands.shared import loading
from penstock.frontend.console import standard_error
from penstock.frontend.rows.prompts import USUAL_TOKENS, Row, from_arguments
from penstock.frontend.rows.rendering import Rendering
from penstock.protocol.errors import ConfigError, RequestError
from penstock.protocol.parameters.sampling import SamplingParams

QUESTION = [{"role": "user", "content": "one"}]


def records(text: str) -> dict[object, dict]:
    """By their names, or their numbers."""
    found = map(json.loads, text.splitlines())
    return {record.get("custom_id", record.get("id", record.get("index"))): record for record in found}


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
    session = Session()
    session.tokenizer = SimpleNamespace(chat_template=template)
    rendering = Rendering(session, **{"is_raw": False, "system": None, **options})
    return rendering.prompt(Row(prompt, SamplingParams()))


@for_each("prompt", ["one", {"prompt": "one"}])
def test_a_text_is_a_message_where_there_is_a_template_and_raw_leaves_it_as_it_is(prompt):
    assert asked(prompt) == ["user"] and asked(prompt, system="Be brief.") == ["system", "user"]
    assert asked(prompt, is_raw=True) == asked(prompt, template=None) == prompt
    for ids in ("", [1, 2], {"prompt_token_ids": [1]}, {"prompt": "a", "prompt_token_ids": [1]}):
        assert asked(ids, system="Be brief.") == ids


def test_each_text_has_the_pictures_of_the_command_line_where_there_is_a_template():
    picture, text = {"type": "image", "image": b"a"}, {"type": "text", "text": "one"}
    assert asked("one", images=[b"a"]) == [picture, text] == asked({"prompt": "one"}, images=[b"a"])
    with pytest.raises(ConfigError, match="--image is for a model that sees"):
        asked("one", template=None, images=[b"a"])
    with pytest.raises(ConfigError, match="--system is for a model with a chat template"):
        asked("one", template=None, system="Be brief.")


@for_each("content, prompt", [(b"one\ntwo\n", "one\ntwo"), (b"one\r\n", "one"), (b"", ""), (b"\xff", None)])
def test_a_hyphen_is_all_of_standard_input_as_one_prompt(content, prompt):
    [row] = from_arguments(["-"], SamplingParams(), io.BytesIO(content))
    assert row.prompt == prompt or (prompt is None and isinstance(row.prompt, RequestError))


@for_each("more", [["pocket"], ["pocket", "-"], ["pocket", "--input", "-"]])
def test_an_empty_pipe_is_refused_before_a_model_is_loaded(more, monkeypatch, capsys):
    monkeypatch.setattr(generate, "load", lambda *arguments: pytest.fail("a model was loaded"))
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert cli.main(["generate", *more]) == 1
    assert "Standard input is empty, so there is no prompt to answer. Write " in capsys.readouterr().err


FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
CHOICE = {"type": "function", "function": {"name": "weather"}}
LINES = [
    '"one"', json.dumps({"messages": QUESTION, "id": "mine"}), json.dumps({"messages": [], "id": "empty"}),
    line("one", max_tokens=3, logprobs=True, top_logprobs=2, model="some", n=2),
    line("called", tools=[{"type": "function", "function": FUNCTION}], tool_choice=CHOICE),
    line("text", "/v1/completions", logprobs=1, prompt_logprobs=0),
    *(line("unknown", colour=1), line("wrong", max_tokens="5"), line("file", chat_template=__file__)),  # opens none
    *(line("elsewhere", "/v1/images"), line("numbers", "/v1/embeddings", input="x"), line("got", method="GET")),
]  # fmt: skip


def test_one_prompt_prints_its_answer_and_nothing_else(generated):
    done = generated("--max-tokens", 3, "--format", "jsonl", "a prompt")
    text = json.loads(done.stdout)["outputs"][0]["text"]
    assert generated("--max-tokens", 3, "a prompt").stdout == text + "\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_request_that_fails_is_named_in_its_line_or_on_stderr_and_the_others_are_answered(generated):
    words = ("--input", "-", "--format", "jsonl", "--max-tokens", 3)
    done = generated(*words, stdin='"good"\n{"prompt_token_ids": [99999999]}\n')
    found = records(done.stdout)
    assert done.returncode == 1
    assert found[0]["outputs"][0]["finish_reason"] == "length"
    assert found[1]["error_code"] == 400 and "99999999" in found[1]["error_msg"]
    assert done.stderr == "penstock: 1 of 2 prompts failed; the line of each says why.\n"  # quiet as it is
    done = generated("good", "", "also good", "--max-tokens", 3, "--n", 2)
    assert done.returncode == 1 and done.stderr.startswith("penstock: prompt 1: ")
    headings = [f"==> {prompt}, answer {sample} <==" for prompt in (0, 2) for sample in (0, 1)]
    assert [line for line in done.stdout.splitlines() if line.startswith("==>")] == headings


def test_conversations_and_lines_of_openais_batches_are_answered_each_in_its_form(generated):
    done = generated("--input", "-", "--format", "jsonl", "--max-tokens", 4, stdin="\n".join(LINES))
    found = records(done.stdout)
    assert (found[0]["prompt"], found["mine"]["messages"]) == ("one", QUESTION)
    assert found[0]["usage"]["prompt_tokens"] == found["mine"]["usage"]["prompt_tokens"]
    assert "empty" in found["empty"]["error_msg"] and done.returncode == 1

    batch = {name: record for name, record in found.items() if "custom_id" in record}
    assert all(record["error"] is None and record["id"].startswith("batch_req_") for record in batch.values())
    status = {name: record["response"]["status_code"] for name, record in batch.items()}
    refused = {"elsewhere": 404, "numbers": 400, "got": 405, "unknown": 400, "wrong": 400, "file": 400}
    assert status == {"called": 200, "one": 200, "text": 200, **refused}
    body = {name: record["response"]["body"] for name, record in batch.items()}
    one, text, called = body["one"], body["text"], body["called"]["choices"][0]["message"]
    assert (one["object"], one["model"], len(one["choices"])) == ("chat.completion", "some", 2)
    assert [len(choice["logprobs"]["content"]) for choice in one["choices"]] == [3, 3]
    assert one["usage"]["completion_tokens"] == 6
    assert (text["object"], text["usage"]["prompt_tokens"]) == ("text_completion", 2)
    assert len(text["choices"][0]["logprobs"]["token_logprobs"]) == text["usage"]["completion_tokens"] == 4
    assert len(text["choices"][0]["prompt_logprobs"]) == 2
    assert called["content"] is None and called["tool_calls"][0]["function"]["name"] == "weather"
    assert "colour" in body["unknown"]["error"]["message"]
    wrong = body["wrong"]["error"]
    assert wrong["message"] == "max_tokens='5': must be a whole number, 1 or more." and wrong["param"] == "max_tokens"


def test_a_pipe_gets_one_answer_as_it_is_made(shell_model):
    """In processes of its own, as a shell starts it and SIGTERM ends it."""
    words = ["generate", str(shell_model), "one", *STAND_IN, "--quiet", "--max-tokens", "900"]
    call = [sys.executable, "-m", "penstock", *words]
    running = subprocess.Popen(call, stdout=subprocess.PIPE, env={**os.environ, **SLOW})
    try:
        assert os.read(running.stdout.fileno(), 1) and running.poll() is None
    finally:
        running.terminate()
        assert running.wait(BOUND) == 128 + signal.SIGTERM


def test_standard_output_whose_reader_has_gone_ends_it_quietly(shell_model):
    """A pipe that closes, in processes of its own: its status is a signal's, and nothing complains at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    call = [sys.executable, "-m", "penstock", "generate", str(shell_model), *STAND_IN, "--quiet", "--max-tokens", "2"]
    done = subprocess.run(call, input="one\ntwo\n", stdout=writer, stderr=subprocess.PIPE, text=True, timeout=BOUND)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_several_answers_stand_in_the_order_of_their_prompts_and_each_that_was_cut_is_told(generated):
    lines = [json.dumps({"prompt": "one", "max_tokens": number}) for number in (90, 9)]
    longer = [{"prompt": "one", "max_length": 540}, {"prompt": "one", "min_tokens": 530}]
    lines += ['"two"', line("mine", "/v1/completions", prompt=[5], max_tokens=2), *map(json.dumps, longer)]
    done = generated("--input", "-", is_quiet=False, stdin="\n".join(lines))
    headings = [line for line in done.stdout.splitlines() if line.startswith("==>")]
    assert headings == [f"==> {title} <==" for title in (0, 1, 2, "mine", 4, 5)]
    assert f"2 of 6 answers were cut at {USUAL_TOKENS} to 530 tokens; --max-tokens allows more." in done.stderr
    assert "3 of 6 answers were cut at 2 to 90 tokens, the max_tokens that were given." in done.stderr
    assert "1 of 6 answers was cut at the max_length that was given." in done.stderr
    assert done.returncode == 0
    for num_samples, which in ((1, "the answer was"), (2, "2 of 2 answers were")):
        done = generated("one", "--n", num_samples, "--max-tokens", 2, is_quiet=False)
        assert f"{which} cut at 2 tokens" in done.stderr


def test_a_terminal_shows_that_a_model_is_loading_and_nothing_of_it_afterwards(monkeypatch):
    ours, theirs = os.openpty()
    shown, model = b"", SimpleNamespace()

    def slow_model(name: str, **options: object) -> SimpleNamespace:
        nonlocal shown
        while b"in memory" not in shown:
            shown += os.read(ours, 1000)
        return model

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(loading, "_STEP_SECONDS", 0.01)
    monkeypatch.setattr(loading, "LLM", slow_model)
    with open(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert loading.load("pocket", {}) is model
        standard_error.write_line("ready")
        while b"ready" not in shown:
            shown += os.read(ours, 1000)
    assert b"Loading pocket: 0 s, " in shown and shown.endswith(b"\r\x1b[Kready\r\n")
    os.close(ours)
