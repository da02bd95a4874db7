"""OpenAI's own client makes responses: whole, as events, with thoughts, calls and what they gave."""

import openai
import pytest

ADD = {
    "name": "add",
    "description": "Adds two numbers",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def test_a_response_is_made_of_items(client):
    found = client.responses.create(model="pocket", input="What is 2 + 3?", temperature=0)
    assert found.output_text.strip() == "5" and found.status == "completed" and found.store is False


def test_the_events_of_a_response_build_the_same_response(client):
    with client.responses.stream(model="pocket", input="What is 2 + 3?", temperature=0) as stream:
        kinds = [event.type for event in stream]
        built = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    whole = client.responses.create(model="pocket", input="What is 2 + 3?", temperature=0)
    assert built.output_text == whole.output_text


def test_a_response_has_its_thought_as_an_item(client):
    found = client.responses.create(model="pocket", input="What is 487 + 256?", temperature=0)
    assert [item.type for item in found.output] == ["reasoning", "message"] and "743" in found.output_text
    assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens
    with client.responses.stream(model="pocket", input="What is 487 + 256?", temperature=0) as stream:
        kinds = {event.type for event in stream}
    assert {"response.reasoning_text.delta", "response.output_text.delta"} <= kinds


@pytest.mark.parametrize("choice", ["auto", "none", {"type": "function", "name": "add"}])
def test_a_response_takes_every_form_of_tool_choice(client, choice):
    found = client.responses.create(
        model="pocket", input="What is 2 + 3?", tools=[{"type": "function", "strict": False, **ADD}],
        tool_choice=choice, temperature=0, max_output_tokens=60, instructions="Be brief.",
    )  # fmt: skip
    kinds = [item.type for item in found.output]
    assert kinds[-1:] == ["function_call"] if isinstance(choice, dict) else kinds


def test_a_response_calls_a_function_and_reads_what_it_gave(client):
    tools = [{"type": "function", "strict": False, **ADD}]
    found = client.responses.create(
        model="pocket",
        input="Use the tool to add 2 and 3.",
        tools=tools,
        tool_choice="required",
        temperature=0,
        max_output_tokens=200,
    )
    [call] = found.output
    assert (call.type, call.name) == ("function_call", "add")
    followed = client.responses.create(
        model="pocket",
        input=[
            {"role": "user", "content": "Use the tool to add 2 and 3."},
            call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": "5"},
        ],
        tools=tools,
        temperature=0,
        max_output_tokens=40,
    )
    assert "5" in followed.output_text


def test_a_response_says_that_it_was_cut(client):
    found = client.responses.create(model="pocket", input="Count from 1 to 9.", max_output_tokens=2, temperature=0)
    assert found.status == "incomplete" and found.incomplete_details.reason == "max_output_tokens"


def test_a_response_takes_the_parameters_that_other_requests_take(client):
    asked = {"model": "pocket", "input": "What is 2 + 3?", "temperature": 0}
    found = client.responses.create(**asked, extra_body={"guided_choice": ["seven"], "min_tokens": 1})
    assert found.output_text == "seven"
    with pytest.raises(openai.BadRequestError, match="repetition_penalty=0: must be a number above 0"):
        client.responses.create(**asked, extra_body={"repetition_penalty": 0})
    with pytest.raises(openai.BadRequestError, match="no field 'n'"):
        client.responses.create(**asked, extra_body={"n": 2})


def test_nothing_is_kept_between_responses(client):
    with pytest.raises(openai.BadRequestError, match="keeps nothing"):
        client.responses.create(model="pocket", input="x", previous_response_id="resp_1")
