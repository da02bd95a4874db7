"""OpenAI's own client gives a model tools: it may call them, must, must call one of them, or sees none."""

import json

import pytest

QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
ADD = {
    "name": "add",
    "description": "Adds two numbers",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
TOOLS = [{"type": "function", "function": ADD}]
GREEDY = {"model": "pocket", "temperature": 0}


def test_a_model_that_may_call_does_so_in_its_own_way(client):
    weather = {"type": "function", "function": {
        "name": "get_weather", "description": "Weather in a city", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}  # fmt: skip
    asked = dict(messages=[{"role": "user", "content": "What's the weather in Paris?"}], tools=[weather], **GREEDY)
    for choice in ({}, {"tool_choice": "auto"}):
        [found] = client.chat.completions.create(**asked, **choice).choices
        [call] = found.message.tool_calls
        assert (found.finish_reason, call.function.name) == ("tool_calls", "get_weather")
        assert json.loads(call.function.arguments) == {"city": "Paris"}
    streamed = ""
    for chunk in client.chat.completions.create(**asked, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            streamed += call.function.arguments or ""
    assert json.loads(streamed) == {"city": "Paris"}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_required_call_comes_as_a_call(client, is_streamed):
    arguments = dict(messages=QUESTION, tools=TOOLS, tool_choice="required", max_tokens=200, **GREEDY)
    if is_streamed:
        name, text, reason = "", "", None
        for chunk in client.chat.completions.create(stream=True, **arguments):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                text += call.function.arguments or ""
            reason = chunk.choices[0].finish_reason or reason
    else:
        [choice] = client.chat.completions.create(**arguments).choices
        [call] = choice.message.tool_calls
        name, text, reason = call.function.name, call.function.arguments, choice.finish_reason
    assert name == "add" and reason == "tool_calls"
    assert {"a", "b"} <= json.loads(text).keys()


def test_a_named_function_gets_its_arguments(client):
    choice = {"type": "function", "function": {"name": "add"}}
    found = client.chat.completions.create(messages=QUESTION, tools=TOOLS, tool_choice=choice, max_tokens=60, **GREEDY)
    [call] = found.choices[0].message.tool_calls
    assert call.function.name == "add" and call.function.arguments.startswith("{")


def test_no_tools_are_shown_where_none_may_be_called(client):
    with_tools = client.chat.completions.create(messages=QUESTION, tools=TOOLS, tool_choice="none", **GREEDY)
    without = client.chat.completions.create(messages=QUESTION, **GREEDY)
    assert with_tools.usage.prompt_tokens == without.usage.prompt_tokens


def test_a_conversation_with_a_call_and_what_it_gave_goes_on(client):
    messages = [
        *QUESTION,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "5"},
    ]
    found = client.chat.completions.create(messages=messages, tools=TOOLS, max_tokens=40, **GREEDY)
    assert "5" in found.choices[0].message.content
