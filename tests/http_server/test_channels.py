"""gpt-oss's channels on their way to clients: chat completions and responses, whole and streamed, and `LLM.chat`."""

import json
import sys
from collections.abc import Iterator

import msgspec
import openai
import pytest
from builders.channels_model import channels_model, said, script_package
from builders.served import Served, running_model, served

from penstock.frontend.http.loaded_model import LoadedModel

THOUGHT = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
FINAL = "<|channel|>final<|message|>It rains."
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]
FLAT = [{"type": "function", "strict": False, **WEATHER}]
QUESTION = [{"role": "user", "content": "Weather?"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("channels")
    sys.path.append(str(package := script_package(folder / "site")))
    options = {"max_model_len": 1024, "kv_cache_memory": "16MiB", "logits_processors": ["script"], "num_threads": 1}
    try:
        with running_model(channels_model(folder / "model"), **options) as found, served(*found) as server:
            yield server
    finally:
        sys.path.remove(str(package))


@pytest.fixture(scope="module")
def client(server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def says(server):
    """Make the model answer with this text."""

    def says(text: str) -> int:
        """How many tokens that is."""
        door = server.llm._session.door
        arguments = said(server.llm.get_tokenizer(), text)
        door.defaults = msgspec.structs.replace(door.defaults, logits_processors_args=arguments)
        return len(arguments["script"])

    return says


def test_a_call_ends_a_completion_with_its_reason(client, says):
    says(THOUGHT + CALL)
    [choice] = client.chat.completions.create(model="pocket", messages=QUESTION, tools=TOOLS).choices
    [call] = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content, choice.message.reasoning_content) == (
        "tool_calls", None, "I look."
    )  # fmt: skip
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})


def test_a_streamed_completion_adds_up_to_the_same(client, says):
    says(THOUGHT + CALL)
    thought = text = name = arguments = ""
    for chunk in client.chat.completions.create(model="pocket", messages=QUESTION, tools=TOOLS, stream=True):
        [choice] = chunk.choices
        thought += getattr(choice.delta, "reasoning_content", None) or ""
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert (thought, text, name, choice.finish_reason) == ("I look.", "", "weather", "tool_calls")
    assert json.loads(arguments) == {"city": "Paris"}


@pytest.mark.parametrize(("end", "reason"), [("<|return|>", "stop"), ("", "length")])
def test_the_final_message_is_the_answer(client, says, end, reason):
    length = says(THOUGHT + FINAL + end)
    [choice] = client.chat.completions.create(model="pocket", messages=QUESTION, max_tokens=length).choices
    assert (choice.message.content, choice.message.reasoning_content) == ("It rains.", "I look.")
    assert (choice.finish_reason, choice.message.tool_calls) == (reason, None)


@pytest.mark.parametrize("header", ["<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"])
def test_a_shape_holds_from_the_final_message_on(client, says, header):
    says(THOUGHT + header)
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
    [choice] = client.chat.completions.create(model="pocket", messages=QUESTION, response_format=form).choices
    assert choice.message.reasoning_content == "I look." and choice.finish_reason == "stop"
    assert json.loads(choice.message.content)["a"] in (1, 2)


@pytest.mark.parametrize("limits", [{"response_format": {"type": "json_object"}}, {"tool_choice": "required"}])
def test_a_call_is_free_of_the_shape_of_the_final_message(client, says, limits):
    says(THOUGHT + CALL)
    [choice] = client.chat.completions.create(model="pocket", messages=QUESTION, tools=TOOLS, **limits).choices
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)


def test_a_limit_of_thoughts_leaves_calls_alone(client, says):
    limit = {"reasoning_max_tokens": says(THOUGHT + CALL[:30])}
    assert says(THOUGHT + CALL) > limit["reasoning_max_tokens"] + 20
    [choice] = client.chat.completions.create(model="pocket", messages=QUESTION, tools=TOOLS, extra_body=limit).choices
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert choice.finish_reason == "tool_calls"


def test_a_response_has_thought_and_call_as_items_and_goes_on_from_them(client, says, monkeypatch):
    says(THOUGHT + CALL)
    found = client.responses.create(model="pocket", input="Weather?", tools=FLAT)
    assert [item.type for item in found.output] == ["reasoning", "function_call"]
    call = found.output[1]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    with client.responses.stream(model="pocket", input="Weather?", tools=FLAT) as stream:
        streamed = [event.type for event in stream]
        assert [item.type for item in stream.get_final_response().output] == ["reasoning", "function_call"]
    assert "response.function_call_arguments.delta" in streamed
    says(FINAL + "<|return|>")
    items = [item.model_dump(exclude_none=True) for item in found.output]
    gave = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain"}
    prompts, render = [], LoadedModel.render
    monkeypatch.setattr(LoadedModel, "render", lambda *given: prompts.append(render(*given)) or prompts[-1])
    followed = client.responses.create(model="pocket", input=[*QUESTION, *items, gave], tools=FLAT)
    assert followed.output_text == "It rains."
    [prompt] = prompts
    assert prompt.endswith(
        "<|start|>assistant<|channel|>analysis<|message|>I look.<|end|>"
        '<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>'
        '<|start|>functions.weather to=assistant<|channel|>commentary<|message|>"Rain"<|end|><|start|>assistant'
    )
