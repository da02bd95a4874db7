"""OpenAI's own client gives a model tools, and makes responses: whole, as events, with thoughts and calls.

A model may call tools, must, must call one of them, or sees none.
"""

import json

import openai
import pytest
from builders.cases import for_each

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Adds two numbers", "parameters": NUMBERS}
FLAT = [{"type": "function", "strict": False, **ADD}]
TOOLS = [{"type": "function", "function": ADD}]
GREEDY = {"model": "pocket", "temperature": 0}
QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
USE = {"role": "user", "content": "Use the tool to add 2 and 3."}


def test_a_response_is_made_of_items(client):
    found = client.responses.create(input="What is 2 + 3?", **GREEDY)
    assert found.output_text.strip() == "5" and found.status == "completed" and found.store is False


def test_the_events_of_a_response_build_the_same_response(client):
    with client.responses.stream(input="What is 2 + 3?", **GREEDY) as stream:
        kinds = [event.type for event in stream]
        built = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    whole = client.responses.create(input="What is 2 + 3?", **GREEDY)
    assert built.output_text == whole.output_text


def test_a_response_has_its_thought_as_an_item(client):
    found = client.responses.create(input="What is 487 + 256?", **GREEDY)
    assert [item.type for item in found.output] == ["reasoning", "message"] and "743" in found.output_text
    assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens
    with client.responses.stream(input="What is 487 + 256?", **GREEDY) as stream:
        kinds = {event.type for event in stream}
    assert {"response.reasoning_text.delta", "response.output_text.delta"} <= kinds


@for_each("choice", ["auto", "none", {"type": "function", "name": "add"}])
def test_a_response_takes_every_form_of_tool_choice(client, choice):
    found = client.responses.create(
        input="What is 2 + 3?", tools=FLAT, tool_choice=choice, max_output_tokens=60, instructions="Be brief.", **GREEDY
    )
    kinds = [item.type for item in found.output]
    assert kinds[-1:] == ["function_call"] if isinstance(choice, dict) else kinds


def test_a_response_calls_a_function_and_reads_what_it_gave(client):
    found = client.responses.create(
        input=USE["content"], tools=FLAT, tool_choice="required", max_output_tokens=200, **GREEDY
    )
    [call] = found.output
    assert (call.type, call.name) == ("function_call", "add")
    gave = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
    items = [USE, call.model_dump(exclude_none=True), gave]
    assert "5" in client.responses.create(input=items, tools=FLAT, max_output_tokens=40, **GREEDY).output_text


def test_a_response_says_that_it_was_cut(client):
    found = client.responses.create(model="pocket", input="Count from 1 to 9.", max_output_tokens=2, temperature=0)
    assert found.status == "incomplete" and found.incomplete_details.reason == "max_output_tokens"


def test_a_response_takes_the_parameters_that_other_requests_take(client):
    asked = {"input": "What is 2 + 3?", **GREEDY}
    found = client.responses.create(**asked, extra_body={"guided_choice": ["seven"], "min_tokens": 1})
    assert found.output_text == "seven"
    with pytest.raises(openai.BadRequestError, match="repetition_penalty=0: must be a number above 0"):
        client.responses.create(**asked, extra_body={"repetition_penalty": 0})
    with pytest.raises(openai.BadRequestError, match="no field 'n'"):
        client.responses.create(**asked, extra_body={"n": 2})


def test_nothing_is_kept_between_responses(client):
    with pytest.raises(openai.BadRequestError, match="keeps nothing"):
        client.responses.create(model="pocket", input="x", previous_response_id="resp_1")


# --- tools in chats --------------------------------------------------------------------------------------------------


def test_a_model_that_may_call_does_so_in_its_own_way(client):
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function = {"name": "get_weather", "description": "Weather in a city", "parameters": city}
    weather = {"type": "function", "function": function}
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


@for_each("is_streamed", [False, True])
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
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    gave = {"role": "tool", "tool_call_id": "call_1", "content": "5"}
    found = client.chat.completions.create(messages=[*QUESTION, called, gave], tools=TOOLS, max_tokens=40, **GREEDY)
    assert "5" in found.choices[0].message.content
