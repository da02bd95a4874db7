"""Ollama's own client before the endpoints below /api."""

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest
from builders.cases import for_each
from builders.later import Later
from builders.served import served_client

from penstock.frontend.http.endpoints.ollama import served_name

ollama = Later("ollama")

QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
SUM_OF_TWO = [{"role": "user", "content": "What is 487 + 256?"}]
GREEDY = {"temperature": 0}
COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "eval_count")


@pytest.fixture(scope="module")
def llama(server) -> "ollama.Client":
    return ollama.Client(host=server.address, timeout=60)


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: its name
    """
    return "sunny"


def test_a_question_is_answered_as_a_whole_and_in_lines_with_thoughts_apart_and_counts_at_the_end(llama):
    whole = llama.chat("pocket:latest", SUM_OF_TWO, options=GREEDY, think=True)
    assert whole.done and whole.done_reason == "stop" and "743" in whole.message.content
    assert "<think>" not in whole.message.content and whole.message.thinking
    *pieces, last = llama.chat("pocket", SUM_OF_TWO, options=GREEDY, think=True, stream=True)
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert "".join(piece.message.thinking or "" for piece in pieces) == whole.message.thinking
    assert not any(piece.done for piece in pieces) and last.done
    assert (last.prompt_eval_count, last.eval_count) == (whole.prompt_eval_count, whole.eval_count)
    for answer in (whole, last):
        assert all(getattr(answer, name) > 0 for name in COUNTS)
        spans = answer.load_duration + answer.prompt_eval_duration + answer.eval_duration
        assert abs(spans - answer.total_duration) < 10
    assert not llama.chat("pocket", SUM_OF_TWO, options=GREEDY, think=False).message.thinking


def test_calls_come_as_a_whole_and_their_results_are_read(llama):
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    found = llama.chat("pocket", question, tools=[get_weather], options=GREEDY).message
    [call] = found.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    lines = llama.chat("pocket", question, tools=[get_weather], options=GREEDY, stream=True)
    assert [each for line in lines for each in line.message.tool_calls or ()] == [call]
    result = {"role": "tool", "content": "sunny", "tool_name": "get_weather"}
    followed = llama.chat("pocket", [*question, found, result], tools=[get_weather], options=GREEDY)
    assert "sunny" in followed.message.content


def test_a_text_of_the_assistant_is_continued(llama):
    turns = [{"role": "user", "content": "Count from 1 to 5."}, {"role": "assistant", "content": "1, 2, 3, 4"}]
    assert llama.chat("pocket", turns, options=GREEDY).message.content.startswith(", 5")


def test_a_prompt_is_answered_or_continued_as_it_stands(llama):
    assert llama.generate("pocket", "What is 2 + 3?", options=GREEDY, think=False).response.strip() == "5"
    asked = {"prompt": "1, 2, 3,", "raw": True, "options": {**GREEDY, "num_predict": 4, "ignore_eos": True}}
    raw = llama.generate("pocket", **asked, logprobs=True, top_logprobs=2)
    assert (raw.eval_count, raw.done_reason) == (4, "length") and len(raw.logprobs) == 4
    assert all(len(token.top_logprobs) == 2 for token in raw.logprobs)
    lines = llama.generate("pocket", **asked, stream=True)
    assert "".join(line.response for line in lines) == raw.response


def test_options_mean_what_they_mean_there(llama):
    drawn = {"temperature": 1.5, "seed": 7, "top_k": 20, "repeat_penalty": 1.1, "num_ctx": 512, "num_gpu": 99}
    first, second = (llama.chat("pocket", QUESTION, options=drawn).message.content for _ in range(2))
    assert first == second
    for options in (
        {"seed": -1.0, "num_predict": 5.0, "top_k": 3.0},
        {"num_keep": 24, "mirostat": 0, "typical_p": 1.0},
    ):
        assert llama.chat("pocket", QUESTION, options={**GREEDY, **options}).done
    count = [{"role": "user", "content": "Count from 1 to 5."}]
    stopped = llama.chat("pocket", count, options={**GREEDY, "stop": ["3"]})
    assert "3" not in stopped.message.content
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
              "additionalProperties": False}  # fmt: skip
    shaped = llama.chat("pocket", QUESTION, format=schema, options=GREEDY, think=False)
    assert isinstance(json.loads(shaped.message.content)["sum"], int)


def test_models_are_listed_described_and_loaded_by_their_names(llama, http):
    assert [model.model for model in llama.list().models] == ["pocket:latest", "another-name:latest"]
    shown = llama.show("pocket:latest")
    assert set(shown.capabilities) == {"completion", "tools", "thinking"}
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] == 2048
    [running, _] = llama.ps().models
    assert running.context_length == 2048 and running.size > 0 and len(running.digest) == 64
    assert llama.generate("pocket", keep_alive="5m").done_reason == "load"
    version = [int(part) for part in http.get("/api/version").json()["version"].split(".")]
    assert version > [0, 6, 4], "what Copilot asks for"
    with pytest.raises(ollama.ResponseError, match="no model 'nobody'") as refused:
        llama.show("nobody")
    assert refused.value.status_code == 404


def test_latest_belongs_to_a_name_only_if_a_model_is_served_by_it():
    async def listing():
        return [SimpleNamespace(name=name) for name in ("pocket", "mine:latest")]

    call = SimpleNamespace(server=SimpleNamespace(models=SimpleNamespace(listing=listing)))
    for name, found in (("pocket:latest", "pocket"), ("mine:latest", "mine:latest"), ("mine:7b", "mine:7b")):
        assert asyncio.run(served_name(call, name)) == found


@for_each("fields, sentence", [
    ({"options": {"temprature": 1}}, "options has no field 'temprature'. Did you mean temperature?"),
    ({"options": {"temperature": "hot"}}, "temperature='hot': must be a number"),
    ({"options": {"mirostat": 2}}, "mirostat=2 is not supported"),
    ({"formt": "json"}, "The body has no field 'formt'. Did you mean format?"),
    ({"temperature": 0.5}, "temperature is not a field here: put it into options."),
    ({"prompt": "a"}, "prompt is not a field here: put it into a message."),
    ({"options": {"model": "a"}}, "model is not a field here: put it next to options."),
    ({"options": {"max_tokens": 1, "num_predict": 2}}, "max_tokens is another name of num_predict"),
    ({"options": {"num_predict": 2.5}}, "num_predict=2.5: must be a whole number"),
    ({"options": {"num_predict": 0}}, "num_predict=0: must be"),
    ({"options": {"repeat_penalty": -1}}, "repeat_penalty=-1: must be"),
    ({"options": {"max_tokens": 0}}, "max_tokens=0: must be"),
    ({"format": "yaml"}, 'format must be "json" or a JSON schema.'),
    ({"think": "deeply"}, "think='deeply': must be"),
    ({"tools": [{"name": "f"}]}, "tools[0] needs function"),
    ({"messages": [{"role": "usr", "content": "a"}]}, "Did you mean user?"),
    ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "sees nothing"),
])  # fmt: skip
def test_a_refusal_is_a_sentence_in_their_form(http, fields, sentence):
    reply = http.post("/api/chat", json={"model": "pocket", "messages": QUESTION, **fields})
    assert reply.status_code == 400 and list(reply.json()) == ["error"]
    assert sentence in reply.json()["error"], reply.text


def test_fields_that_nothing_reads_are_named_in_the_last_line(http):
    body = {"model": "pocket", "messages": QUESTION, "novelty": 1, "options": {"num_ctx": 65_536, "quantum": 2}}
    *_, last = http.post("/api/chat", json=body).text.splitlines()
    notice = json.loads(last)["notice"]
    assert "'novelty'" in notice and "'quantum'" in notice and "num_ctx=65,536" in notice


def test_a_stream_that_fails_ends_with_a_line_of_the_error(paced):
    body = {"model": "pocket", "raw": True, "prompt": "a", "options": {"ignore_eos": True}}
    with served_client(paced, request_timeout=1.5) as (_, client):
        *_, last = client.post("/api/generate", json=body, timeout=httpx.Timeout(60)).text.splitlines()
    assert json.loads(last)["error"].startswith("The answer took longer")
