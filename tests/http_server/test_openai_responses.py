"""OpenAI's own client gives a model tools, and makes responses: whole, as events, with thoughts and calls.

A model may call tools, must, must call one of them, or sees none.
"""

import json

import openai
import pytest

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Adds two numbers", "parameters": NUMBERS}
FLAT = [{"type": "function", "strict": False, **ADD}]
TOOLS = [{"type": "function", "function": ADD}]
GREEDY = {"model": "pocket", "temperature": 0}
QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
USE = {"role": "user", "content": "Use the tool to add 2 and 3."}


def test_the_events_of_a_response_build_the_same_response_which_says_where_it_was_cut(client):
    with client.responses.stream(input="What is 2 + 3?", **GREEDY) as stream:
        kinds = [event.type for event in stream]
        built = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    whole = client.responses.create(input="What is 2 + 3?", **GREEDY)
    assert built.output_text == whole.output_text and whole.output_text.strip() == "5"
    assert whole.status == "completed" and whole.store is False
    found = client.responses.create(input="Count from 1 to 9.", max_output_tokens=2, **GREEDY)
    assert found.status == "incomplete" and found.incomplete_details.reason == "max_output_tokens"


def test_a_response_has_its_thought_as_an_item(client):
    found = client.responses.create(input="What is 487 + 256?", **GREEDY)
    assert [item.type for item in found.output] == ["reasoning", "message"] and "743" in found.output_text
    assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens
    with client.responses.stream(input="What is 487 + 256?", **GREEDY) as stream:
        kinds = {event.type for event in stream}
    assert {"response.reasoning_text.delta", "response.output_text.delta"} <= kinds


def test_a_response_takes_every_form_of_tool_choice_calls_a_function_and_reads_what_it_gave(client):
    def kinds(choice):
        asked = {"input": "What is 2 + 3?", "tools": FLAT, "max_output_tokens": 60, "instructions": "Be brief."}
        return [item.type for item in client.responses.create(**asked, tool_choice=choice, **GREEDY).output]

    assert kinds("auto") and "function_call" not in kinds("none")
    assert kinds({"type": "function", "name": "add"})[-1:] == ["function_call"]
    found = client.responses.create(
        input=USE["content"], tools=FLAT, tool_choice="required", max_output_tokens=200, **GREEDY
    )
    [call] = found.output
    assert (call.type, call.name) == ("function_call", "add")
    gave = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
    items = [USE, call.model_dump(exclude_none=True), gave]
    assert "5" in client.responses.create(input=items, tools=FLAT, max_output_tokens=40, **GREEDY).output_text


def test_a_response_takes_the_parameters_that_other_requests_take(client):
    asked = {"input": "What is 2 + 3?", **GREEDY}
    found = client.responses.create(**asked, extra_body={"guided_choice": ["seven"], "min_tokens": 1})
    assert found.output_text == "seven"
    with pytest.raises(openai.BadRequestError, match="repetition_penalty=0: must be a number above 0"):
        client.responses.create(**asked, extra_body={"repetition_penalty": 0})
    with pytest.raises(openai.BadRequestError, match="no field 'n'"):
        client.responses.create(**asked, extra_body={"n": 2})
    with pytest.raises(openai.BadRequestError, match="keeps nothing"):
        client.responses.create(**asked, previous_response_id="resp_1")


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


def test_a_required_call_comes_as_a_call_so_does_one_of_a_named_function_and_none_shows_no_tools(client):
    def chat(choice, tools=TOOLS, **further):
        asked = {"messages": QUESTION, "max_tokens": 200, "tool_choice": choice, **further}
        return client.chat.completions.create(**asked, tools=tools, **GREEDY)

    name, text, reason = "", "", None
    for chunk in chat("required", stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            name += call.function.name or ""
            text += call.function.arguments or ""
        reason = chunk.choices[0].finish_reason or reason
    [choice] = chat("required").choices
    [call] = choice.message.tool_calls
    assert (name, text, reason) == (call.function.name, call.function.arguments, choice.finish_reason)
    assert name == "add" and reason == "tool_calls" and {"a", "b"} <= json.loads(text).keys()
    [call] = chat({"type": "function", "function": {"name": "add"}}, max_tokens=60).choices[0].message.tool_calls
    assert call.function.name == "add" and call.function.arguments.startswith("{")
    without = client.chat.completions.create(messages=QUESTION, **GREEDY)
    assert chat("none").usage.prompt_tokens == without.usage.prompt_tokens


def test_a_conversation_with_a_call_and_what_it_gave_goes_on(client):
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    gave = {"role": "tool", "tool_call_id": "call_1", "content": "5"}
    found = client.chat.completions.create(messages=[*QUESTION, called, gave], tools=TOOLS, max_tokens=40, **GREEDY)
    assert "5" in found.choices[0].message.content
