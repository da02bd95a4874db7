"""OpenAI's own client, of the current major version, walks through every endpoint, in whole answers and in streams."""

import json
import socket

import httpx
import msgspec
import pydantic
import pytest
from builders.cases import for_each
from builders.later import Later
from builders.raw_http import posted

from penstock.frontend.http.answers.generation import Tally
from penstock.frontend.http.schemas.sampling import CompletionDetails
from penstock.protocol.outputs import CompletionOutput, RequestMetrics, RequestOutput, Samples

openai = Later("openai")

QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
SUM_OF_TWO = [{"role": "user", "content": "What is 487 + 256?"}]
GREEDY = {"model": "pocket", "temperature": 0}
COUNTED = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
def chat(client):
    def chat(messages=QUESTION, **fields):
        return client.chat.completions.create(messages=messages, **{**GREEDY, **fields})

    return chat


def joined(chunks, name="content"):
    """A field of a stream's deltas, put together for each sample."""
    texts = {}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        texts[choice.index] = texts.get(choice.index, "") + (getattr(choice.delta, name, None) or "")
    return [texts[index] for index in sorted(texts)]


def test_models_are_listed_and_looked_up_by_their_names_and_what_is_not_there_is_refused_clearly(client, chat):
    assert [card.id for card in client.models.list()] == ["pocket", "another-name"]
    assert client.models.retrieve("another-name").id == "another-name"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/there")
    with pytest.raises(openai.NotFoundError, match="no model 'nobody'"):
        chat(model="nobody")
    with pytest.raises(openai.BadRequestError, match="suffix"):
        client.completions.create(model="pocket", prompt="a", suffix="b")


def test_a_question_is_answered_and_its_tokens_are_counted_each_with_its_log_probability(chat):
    found = chat(logprobs=True, top_logprobs=3, extra_body={"priority": 0})  # which is harmless
    [choice] = found.choices
    assert choice.message.content.strip() == "5" and choice.finish_reason == "stop"
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert len(choice.logprobs.content) == found.usage.completion_tokens
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(each.logprob for each in token.top_logprobs)  # greedy
    [choice] = chat([{"role": "user", "content": "Count from 1 to 5."}], stop=["3"], max_tokens=40).choices
    assert "3" not in choice.message.content and choice.finish_reason in ("stop", "length")


def test_a_prediction_changes_no_answer_and_only_drafts_that_came_true_are_part_of_its_count(chat):
    plain = chat()
    for text in ("5", "The answer is five.", "5" * 500):
        found = chat(prediction={"type": "content", "content": text})
        assert found.choices == plain.choices
        assert found.usage.completion_tokens == plain.usage.completion_tokens
    with pytest.raises(openai.BadRequestError, match="prediction"):
        chat(prediction={"type": "picture", "content": "5"})


def test_usage_has_the_counts_of_drafts_only_for_a_request_with_a_prediction():
    tally = Tally()
    answer, metrics = CompletionOutput(token_ids=[1]), RequestMetrics(0.0, num_draft_tokens=5, num_accepted_tokens=2)
    for prompt in range(2):
        tally.add(prompt, RequestOutput("", None, [1], Samples([answer]), metrics=metrics))
    assert tally.usage.completion_tokens_details is msgspec.UNSET
    for counted, accepted, rejected in ((tally, 4, 6), (Tally(), 0, 0)):
        counted.reports_drafts = True
        assert counted.usage.completion_tokens_details == CompletionDetails(
            accepted_prediction_tokens=accepted, rejected_prediction_tokens=rejected
        )


def test_a_stream_holds_the_same_answers_of_samples_with_a_seed_too_and_ends_with_its_usage(chat):
    whole, chunks = chat(), list(chat(**COUNTED))
    assert joined(chunks) == [whole.choices[0].message.content]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (chunks[-2].choices[0].finish_reason, chunks[-1].choices) == ("stop", [])
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    sampled = {"n": 3, "temperature": 1.5, "seed": 7, "max_tokens": 8}
    first, second = (chat(**sampled).choices for _ in range(2))
    assert [choice.index for choice in first] == [0, 1, 2]
    texts = [choice.message.content for choice in first]
    assert texts == [choice.message.content for choice in second] == joined(chat(stream=True, **sampled))


def test_thoughts_come_apart_from_the_answer(chat):
    chunks, message = list(chat(SUM_OF_TWO, stream=True)), chat(SUM_OF_TWO).choices[0].message
    told = [message.reasoning_content, message.content]
    assert told == joined(chunks, "reasoning_content") + joined(chunks)
    assert told[0] and "743" in told[1] and "<think>" not in "".join(told)
    without = chat(SUM_OF_TWO, extra_body={"include_reasoning": False})
    assert not hasattr(without.choices[0].message, "reasoning_content")


def test_an_event_is_never_cut_where_it_is_sent(server):
    """`vllm bench serve` loses what comes in pieces that end within "data: ", and other clients may."""
    address = httpx.URL(server.address)
    with socket.create_connection((address.host, address.port), timeout=60) as connection:
        connection.sendall(posted({"messages": QUESTION, "stream": True, **GREEDY}, "/v1/chat/completions"))
        with connection.makefile("rb") as answer:
            while answer.readline().strip():
                pass
            chunks = []
            while length := int(answer.readline(), 16):
                chunks.append(answer.read(length))
                answer.readline()
    assert chunks and all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)


class Sum(pydantic.BaseModel):
    sum: int = pydantic.Field(ge=0, le=99)


def test_an_answer_has_the_shape_of_its_schema_and_is_read_into_a_class_of_the_client(client, chat):
    schema = Sum.model_json_schema() | {"additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    found = chat(response_format=form, max_tokens=60)
    assert isinstance(json.loads(found.choices[0].message.content)["sum"], int)
    found = client.chat.completions.parse(messages=QUESTION, response_format=Sum, max_tokens=60, **GREEDY)
    assert isinstance(found.choices[0].message.parsed, Sum)
    asked = {"input": "What is 2 + 3?", "text_format": Sum, "max_output_tokens": 60}
    assert isinstance(client.responses.parse(**asked, **GREEDY).output_parsed, Sum)


@for_each("fields, holds", [
    ({"guided_choice": ["left", "right"]}, lambda text: text in ("left", "right")),
    ({"guided_regex": "[ab]{3}"}, lambda text: len(text) == 3 and set(text) <= {"a", "b"}),
    ({"structured_outputs": {"choice": ["up"]}}, lambda text: text == "up"),
    ({"guided_json": {"type": "boolean"}}, lambda text: isinstance(json.loads(text), bool)),
    ({"response_format": {"type": "json_object"}, "stop": ["}"], "seed": 3}, lambda text: text.lstrip()[0] == "{"),
    ({"response_format": {"type": "text"}}, bool),
    ({"chat_template_kwargs": {"enable_thinking": False}, "top_k": 1, "min_p": 0.1}, bool),
])  # fmt: skip
def test_simpler_response_formats_and_the_further_fields_of_other_servers_work(chat, fields, holds):
    found = chat(extra_body=fields, max_tokens=30)
    assert holds(found.choices[0].message.content), found.choices[0].message.content


def test_prompts_are_completed_side_by_side_and_an_echo_holds_the_prompt_and_its_log_probabilities(client):
    found = client.completions.create(prompt=["One", [80, 836]], n=2, max_tokens=3, **GREEDY)
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert found.choices[0].text == found.choices[1].text
    assert found.usage.completion_tokens == 12

    def echoed(prompt, max_tokens, **further):
        asked = {"echo": True, "logprobs": 2, **further}
        return client.completions.create(prompt=prompt, max_tokens=max_tokens, **asked, **GREEDY)

    for most in (2, 0):
        found = echoed("What is", most)
        [choice] = found.choices
        assert choice.text.startswith("What is") and (most or choice.text == "What is")
        told = choice.logprobs
        assert told.token_logprobs[0] is None and all(value <= 0 for value in told.token_logprobs[1:])
        assert len(told.tokens) == found.usage.total_tokens == found.usage.prompt_tokens + most
        assert told.text_offset == sorted(told.text_offset)
    assert echoed([[40]], 0).choices[0].logprobs.token_logprobs == [None], "nothing predicts the only token"
    found = client.completions.create(prompt=[[40]], extra_body={"prompt_logprobs": 1}, max_tokens=1, **GREEDY)
    assert found.choices[0].prompt_logprobs == [None]
    texts, asked = ["", ""], {"logprobs": None, "prompt": ["What", "Where"], "max_tokens": 6}
    for chunk in echoed(stream=True, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in echoed(**asked).choices]


# --- responses: whole, as events, with calls --------------------------------------------------------------------------


NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Adds two numbers", "parameters": NUMBERS}
FLAT = [{"type": "function", "strict": False, **ADD}]
TOOLS = [{"type": "function", "function": ADD}]
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


def test_a_response_takes_every_form_of_tool_choice_calls_a_function_and_reads_what_it_gave(client):
    def kinds(choice):
        asked = {"input": "What is 2 + 3?", "tools": FLAT, "max_output_tokens": 60, "instructions": "Be brief."}
        return [item.type for item in client.responses.create(**asked, tool_choice=choice, **GREEDY).output]

    assert kinds("auto") and "function_call" not in kinds("none")
    assert kinds({"type": "function", "name": "add"})[-1:] == ["function_call"]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    assert kinds(allowed)[-1:] == ["function_call"]
    with pytest.raises(openai.BadRequestError, match="tool_choice needs mode and tools"):
        kinds({**allowed, "mode": None})
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


def tool(name, **further):
    return {"type": "function", "function": {"name": name, **further}}


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool(name) for name in names]}}


def test_a_required_call_comes_as_a_call_in_a_stream_too(chat):
    asked = {"tools": TOOLS, "tool_choice": "required", "max_tokens": 200}
    name, text, reason = "", "", None
    for chunk in chat(**asked, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            name += call.function.name or ""
            text += call.function.arguments or ""
        reason = chunk.choices[0].finish_reason or reason
    [choice] = chat(**asked).choices
    [call] = choice.message.tool_calls
    assert (name, text, reason) == (call.function.name, call.function.arguments, choice.finish_reason)
    assert name == "add" and reason == "tool_calls" and {"a", "b"} <= json.loads(text).keys()


@for_each("choice, tools, name", [
    (tool("add"), TOOLS, "add"), (allowed("required", "now"), [*TOOLS, tool("now"), tool("then")], "now"),
    *((choice, [tool("now", **parameters)], "now") for choice in ("required", tool("now"))
      for parameters in ({}, {"parameters": {"type": "object", "properties": {}}})),
])  # fmt: skip
def test_the_function_that_is_asked_for_is_called(chat, choice, tools, name):
    [call] = chat(tools=tools, tool_choice=choice, max_tokens=200).choices[0].message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert call.function.name == name and (name == "add" or len(tools) > 1 or arguments == {})


def test_none_shows_no_tools_and_those_that_are_not_allowed_are_not_shown(chat):
    assert chat(tools=TOOLS, tool_choice="none").usage.prompt_tokens == chat().usage.prompt_tokens
    mixed = chat(tools=[tool("now"), *TOOLS], tool_choice=allowed("auto", "add"))
    assert mixed.usage == chat(tools=TOOLS, tool_choice="auto").usage
    for wrong, words in (
        (allowed("auto", "nwo"), "allows 'nwo', which is not among tools"),
        (allowed("required"), "there are no tools"), ({"type": "allowed_tools"}, "needs allowed_tools"),
        ({"type": "function", "function": None}, "needs function"),
    ):  # fmt: skip
        with pytest.raises(openai.BadRequestError, match=words):
            chat(tools=TOOLS, tool_choice=wrong)


def test_a_call_that_the_model_has_begun_by_itself_is_held_to_the_schema_of_its_tool(chat):
    """The bias has it call whenever it is free; its calls alone are held, and streams tell the same."""
    schema = {"type": "object", "properties": {"n": {"enum": [7, 8]}, "s": {"enum": ["x"]}}, "required": ["n", "s"]}
    begun = {"logit_bias": {"5": 100}, "max_tokens": 90, "temperature": 1, "seed": 3, "n": 2}
    for name, further in {"now": {}, "pick": {"parameters": schema}}.items():
        asked = {"tools": [tool(name, **further)], **begun}
        whole = [choice.message.tool_calls for choice in chat(**asked).choices]
        pieces: dict[tuple[int, int], str] = {}
        for choice in (choice for chunk in chat(**asked, stream=True) for choice in chunk.choices):
            for call in choice.delta.tool_calls or []:
                place = choice.index, call.index
                pieces[place] = pieces.get(place, "") + (call.function.arguments or "")
        for sample, calls in enumerate(whole):
            assert len(calls) > 1 and {call.function.name for call in calls} == {name}
            for arguments in (json.loads(call.function.arguments) for call in calls[:-1]):  # the last may be cut
                assert arguments == {} if name == "now" else (arguments["n"] in (7, 8) and arguments["s"] == "x")
            texts = [call.function.arguments for call in calls]
            assert [pieces[sample, index] for index in range(len(calls))] == texts


def test_an_answer_that_repeats_itself_says_so_in_its_stop_reason(chat):
    looping = {"guided_grammar": 'root ::= ("ab"){400}', "early_stop": {"strategy": "cycle", "window_size": 40}}
    [choice] = chat(max_tokens=700, extra_body=looping).choices
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "repetition")
    assert choice.message.content.startswith("abab") and len(choice.message.content) < 400


def test_a_refusal_among_the_parts_is_text_and_a_prompt_that_fits_may_ask_to_be_cut(client, chat):
    refused, told = {"type": "refusal", "refusal": "No."}, {"type": "text", "text": "No."}
    first, second = (
        chat([USE, {"role": "assistant", "content": [part]}, USE], max_tokens=9) for part in (refused, told)
    )
    assert first.choices == second.choices and first.usage.prompt_tokens == second.usage.prompt_tokens
    said = {"type": "message", "role": "assistant", "content": [refused]}
    asked = {"input": [USE, said, USE], "truncation": "auto", "max_output_tokens": 9}
    assert client.responses.create(**asked, **GREEDY).usage.input_tokens == first.usage.prompt_tokens


def test_a_conversation_with_a_call_and_what_it_gave_goes_on(chat):
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    gave = {"role": "tool", "tool_call_id": "call_1", "content": "5"}
    assert "5" in chat([*QUESTION, called, gave], tools=TOOLS, max_tokens=40).choices[0].message.content
