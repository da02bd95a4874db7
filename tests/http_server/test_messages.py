"""/v1/messages: Anthropic's own client, the bodies that Claude Code sends, and how conversations become prompts."""

import asyncio
import json
import re

import httpx
import pytest
from builders.cases import for_each
from builders.later import Later
from builders.served import served_client

from penstock.frontend.http.answers.answering import or_silence
from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.answers.message_blocks import MessageBlocks, loop_notice, stop_of
from penstock.frontend.http.endpoints import messages
from penstock.frontend.http.requests.decoding import decoded
from penstock.frontend.http.requests.message_parts import message_parts
from penstock.frontend.http.schemas.messages import MessagesRequest
from penstock.protocol.errors import RequestError
from penstock.protocol.outputs import CompletionOutput, FunctionCall, ToolCall
from penstock.protocol.parameters.sampling import SamplingParams

anthropic = Later("anthropic")

URL = "/v1/messages"
QUESTION = [{"role": "user", "content": "What is 2 + 3?"}]
SUM_OF_TWO = [{"role": "user", "content": [{"type": "text", "text": "What is 487 + 256?"}]}]
GREEDY = {"temperature": 0}
THINKING = {"type": "enabled", "budget_tokens": 1024}
TOOL = {
    "name": "get_weather", "description": "Weather of a city", "cache_control": {"type": "ephemeral"},
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}  # fmt: skip
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def ask(claude):
    usual = {"model": "pocket", "max_tokens": 200, "extra_body": GREEDY}
    return lambda messages=QUESTION, **fields: claude.messages.create(**{**usual, "messages": messages, **fields})


# --- the client ------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_with_a_text_first_and_its_tokens_are_those_counted_before(claude, ask):
    system = "Answer briefly. " * 20
    found = ask(system=system)
    assert [block.type for block in found.content] == ["text"] and found.content[0].text.strip()
    assert (found.type, found.role, found.model, found.stop_reason) == ("message", "assistant", "pocket", "end_turn")
    counted = claude.messages.count_tokens(model="pocket", messages=QUESTION, system=system).input_tokens
    again = ask(system=system).usage
    for usage in (found.usage, again):
        assert usage.input_tokens + usage.cache_read_input_tokens == counted
    assert again.cache_read_input_tokens > 0 and again.cache_creation_input_tokens == 0


def test_a_stream_has_the_events_and_the_message_of_the_whole_answer(claude, ask):
    fields = {"messages": SUM_OF_TWO, "thinking": THINKING}
    whole = ask(**fields)
    with claude.messages.stream(model="pocket", max_tokens=200, extra_body=GREEDY, **fields) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert "743" in whole.content[1].text and whole.content[0].signature
    assert [block.to_dict() for block in message.content] == [block.to_dict() for block in whole.content]
    assert message.usage.output_tokens == whole.usage.output_tokens
    assert 0 < whole.usage.output_tokens_details.thinking_tokens < whole.usage.output_tokens
    hidden = ask(messages=SUM_OF_TWO, thinking={**THINKING, "display": "omitted"})
    assert (hidden.content[0].thinking, hidden.content[1].text) == ("", whole.content[1].text)


@for_each("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_call_comes_back_with_its_result_and_its_thoughts_whatever_had_to_be_called(claude, ask, choice):
    found = ask(WEATHER, tools=[TOOL], tool_choice={**choice, "disable_parallel_tool_use": True})
    assert found.stop_reason == "tool_use"
    call = found.content[-1]
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
    fields = {"tools": [TOOL], "tool_choice": choice, "messages": WEATHER}
    with claude.messages.stream(model="pocket", max_tokens=200, extra_body=GREEDY, **fields) as stream:
        assert stream.get_final_message().content[-1].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    turns = [*WEATHER, {"role": "assistant", "content": found.content}, {"role": "user", "content": [result]}]
    followed = ask(turns, tools=[TOOL])
    assert followed.stop_reason == "end_turn" and "sunny" in followed.content[0].text


def test_what_ends_an_answer_is_named_and_a_text_of_the_assistant_is_continued(ask):
    count = [{"role": "user", "content": "Count from 1 to 5."}]
    found = ask(count, stop_sequences=["4"])
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", "4") and "3" in found.content[0].text
    assert ask(count, max_tokens=3).stop_reason == "max_tokens"
    forever = ask(count, max_tokens=32_000, extra_body={**GREEDY, "ignore_eos": True, "early_stop": False})
    assert forever.stop_reason == "model_context_window_exceeded"
    [text] = ask([*count, {"role": "assistant", "content": "1, 2, 3, 4"}]).content
    assert text.text.startswith(", 5")


def test_an_answer_has_the_shape_of_its_schema(ask):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"],
              "additionalProperties": False}  # fmt: skip
    found = ask(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert isinstance(json.loads(found.content[0].text)["sum"], int)


def test_models_are_listed_for_this_client_too(claude):
    models = list(claude.models.list())
    assert [model.id for model in models] == ["pocket", "another-name"]
    assert models[0].display_name == "pocket" and models[0].created_at.year > 2000
    with pytest.raises(anthropic.NotFoundError, match="no model 'nobody'") as refused:
        claude.models.retrieve("nobody")
    assert refused.value.body["error"]["type"] == "not_found_error"


def test_a_key_comes_in_either_header_and_its_lack_is_told_in_the_form_of_the_client(pocket, keys):
    with served_client(pocket, **keys) as (_, http):
        body = {"model": "pocket", "max_tokens": 1, "messages": QUESTION}
        for headers, status in (({"x-api-key": "first"}, 200), ({"authorization": "Bearer second"}, 200),
                                ({"x-api-key": "third"}, 401), ({}, 401),
                                ({"authorization": "Basic first", "x-api-key": "first"}, 401)):  # fmt: skip
            reply = http.post(URL, json=body, headers=headers)
            assert reply.status_code == status, headers
        assert reply.json()["type"] == "error" and reply.json()["error"]["type"] == "authentication_error"


def test_a_stream_begins_before_its_prompt_is_computed_and_says_that_it_is_alive(paced, monkeypatch):
    monkeypatch.setattr(messages, "PING_SECONDS", 0.001)
    body = {"model": "pocket", "max_tokens": 2, "stream": True, "messages": [{"role": "user", "content": "a " * 500}]}
    with served_client(paced) as (_, http):
        lines = http.post(URL, json=body).text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    kinds = [event["type"] for event in events]
    first = kinds.index("message_start")
    assert set(kinds[:first]) <= {"ping"} and kinds[first + 1] == "ping" and kinds[-1] == "message_stop"
    began, ended = events[first]["message"]["usage"], events[-2]["usage"]
    counts = [each["input_tokens"] + each["cache_read_input_tokens"] for each in (began, ended)]
    assert counts[0] == counts[1] > 500 and ended["output_tokens"] == 2


def test_silence_is_told_until_the_first_piece_and_nothing_is_left_of_a_stream_that_is_closed():
    ends = []

    async def pieces(released):
        try:
            await released.wait()
            yield 1
            yield 2
        finally:
            ends.append(True)

    async def run():
        released, found = asyncio.Event(), []
        async for piece in or_silence(pieces(released), 0.001):
            found.append(piece)
            if len(found) == 3:
                released.set()
        assert found[:3] == [None] * 3 and found[-2:] == [1, 2] and ends == [True]
        waiting = or_silence(pieces(asyncio.Event()), 0.001)
        assert await anext(waiting) is None
        await waiting.aclose()

    asyncio.run(run())
    assert ends == [True, True]


# --- what Claude Code sends -------------------------------------------------------------------------------------------


def text(content, **more):
    return {"type": "text", "text": content, **more}


def user(*content):
    return {"role": "user", "content": [*content]}


def assistant(*content):
    return {"role": "assistant", "content": [*content]}


CLAUDE_CODE = {
    "model": "pocket", "max_tokens": 32_000, "stream": True,
    "system": [
        text("x-anthropic-billing-header: cc_version=2.1.37; cc_entrypoint=cli; cch=fa690;"),
        text("You help with code.", cache_control={"type": "ephemeral", "ttl": "1h"}),
    ],
    "messages": [
        user(text("<system-reminder>\nToday is Monday.\n</system-reminder>"),
             text("What is the weather in Paris?", cache_control={"type": "ephemeral"})),
        {"role": "system", "content": "<total_tokens>1000 tokens left</total_tokens>"},
        assistant(
            {"type": "thinking", "thinking": "I ask.", "signature": "abc"},
            {"type": "redacted_thinking", "data": "xyz"}, text("I look."),
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}, "caller": {}}),
        user({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "no network"},
             text("And now?")),
    ],
    "tools": [{**TOOL, "eager_input_streaming": True}],
    "metadata": {"user_id": '{"device_id":"a","session_id":"b"}'},
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}  # fmt: skip


def parts_of(**fields):
    request = decoded(json.dumps({"messages": QUESTION, **fields}).encode(), MessagesRequest)
    return message_parts(request, SamplingParams(), None, None)


def test_a_body_of_claude_code_is_answered_and_its_conversation_is_that_of_other_clients(http):
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,effort-2025-11-24"}
    reply = http.post(f"{URL}?beta=true", json=CLAUDE_CODE, headers=headers)
    assert reply.status_code == 200, reply.text
    events = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    assert events[:2] == ["message_start", "ping"] and events[-1] == "message_stop"
    counted = http.post(f"{URL}/count_tokens?beta=true", json=CLAUDE_CODE, headers=headers).json()["input_tokens"]
    start = json.loads(reply.text.split("data: ")[1].split("\n")[0])["message"]
    assert start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] == counted
    assert "notice" not in start
    parts = parts_of(**CLAUDE_CODE)
    system, question, answer, result, now = parts.messages
    assert system.content == "You help with code."
    assert [part.text for part in question.content][1:] == [
        "What is the weather in Paris?", "<system>\n<total_tokens>1000 tokens left</total_tokens>\n</system>",
    ]  # fmt: skip
    assert (answer.content, answer.reasoning_content) == ("I look.", "I ask.")
    assert (result.role, result.content, result.name) == ("tool", "Error: no network", "get_weather")
    assert (result.tool_call_id, now.content) == (answer.tool_calls[0].id, "And now?")
    assert parts.template_options == {"enable_thinking": True, "reasoning_effort": "high"}


# --- pictures, documents, and what can't be shown --------------------------------------------------------------------

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
BY_URL = {"type": "image", "source": {"type": "url", "url": "data:image/png;base64,aGk="}}
PAGE = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "a text"}}
FOUND = {"type": "search_result", "source": "s", "title": "T", "content": [{"type": "text", "text": "a text"}]}


def test_results_follow_their_calls_and_only_billing_lines_are_left_out_of_a_system_prompt():
    calls = [{"type": "tool_use", "id": name, "name": name, "input": {}} for name in "ab"]
    results = [{"type": "tool_result", "tool_use_id": name, "content": f"of {name}"} for name in "ba"]
    turns = [*QUESTION, {"role": "assistant", "content": "One."}, assistant(*calls), user(*results)]
    for system in ("X-Anthropic-Billing-Header: a=1;\nx-anthropic-b: 2\n\nBe brief.", "Be brief."):
        told, _, answer, *answers = parts_of(system=system, messages=turns).messages
        assert (told.content, answer.content) == ("Be brief.", "One.")
        assert [(each.name, each.content) for each in answers] == [("a", "of a"), ("b", "of b")]


def test_pictures_of_a_result_follow_it_and_documents_are_texts():
    result = {"type": "tool_result", "tool_use_id": "a", "content": [text("seen"), PICTURE]}
    call = assistant({"type": "tool_use", "id": "a", "name": "f", "input": {}})
    _, tool, asked = parts_of(messages=[call, user(result, BY_URL, PAGE, FOUND)]).messages
    assert (tool.role, tool.content) == ("tool", "seen")
    url = "data:image/png;base64,aGk="
    found = [part.image_url or part.text for part in asked.content]
    assert found == [url, url, "T", "a text", "T\ns\na text"]


@for_each("fields, sentence", [
    ({"messages": [user({"type": "server_tool_use", "id": "a"})]}, "'server_tool_use'"),
    ({"messages": [user({**PICTURE, "source": {"type": "file"}})]}, "a picture's source is"),
    ({"messages": [user({**PAGE, "source": {"type": "base64"}})]}, "send its text as"),
    ({"messages": [{"role": "system", "content": "a"}]}, "no message of a user"),
    ({"messages": [user()]}, "no message of a user"),
    ({"system": [PICTURE]}, "'image' can't be in a system prompt"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "'bash_20250124' is a tool of Anthropic's own"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice needs name"),
    ({"tool_choice": {"type": "any"}}, "there are no tools"),
    ({"mcp_servers": [{"name": "a"}]}, "no such service"),
    ({"temprature": 1}, "Did you mean temperature?"),
    ({"n": 2}, "n is not a field here: /v1/chat/completions takes it."),
    ({f"x{n}": 1 for n in range(40)}, "40 unknown fields"),
    ({"messages": [user({"type": "tool_result", "tool_use_id": "b"})]}, "tool_use_id='b'"),
    ({"tools": [{"name": "f", "parameters": {}}]}, "parameters is not a field here: here it is input_schema."),
    ({"tools": [{"function": {"name": "f"}}]}, "A tool is {\"name\": …"),
    ({"thinking": {"type": "enabled", "budget_token": 9}}, "Did you mean budget_tokens?"),
    ({"stop": "a", "stop_sequences": ["b"]}, "give one of them"),
    ({"messages": [*QUESTION, {"role": "assistant", "content": "{"}],
      "output_config": {"format": {"type": "json_schema", "schema": {}}}}, "holds a whole answer"),
    ({"receipt": True}, "receipt: /v1/messages gives none"),
])  # fmt: skip
def test_what_the_model_could_not_be_shown_is_refused_in_a_sentence(fields, sentence):
    with pytest.raises((ApiError, RequestError), match=re.escape(sentence)):
        parts_of(**fields)


def test_a_field_of_a_later_version_has_a_notice_and_errors_have_the_clients_form(http):
    body = {"model": "pocket", "max_tokens": 1, "messages": QUESTION}
    assert "'quantum_mode'" in http.post(URL, json={**body, "quantum_mode": True}).json()["notice"]
    for wrong, status, kind in (({"model": "nobody"}, 404, "not_found_error"),
                                ({"max_tokens": "many"}, 400, "invalid_request_error")):  # fmt: skip
        for fields in ({}, {"stream": True}):
            reply = http.post(URL, json={**body, **wrong, **fields})
            error = reply.json()
            assert (reply.status_code, error["type"], error["error"]["type"]) == (status, "error", kind)
            assert error["request_id"] == reply.headers["request-id"] and error["request_id"].startswith("req_")
    assert http.post("/v1/messages/batches", json={}).json()["error"]["message"].endswith("Here it is /v1/batches.")


# --- blocks ----------------------------------------------------------------------------------------------------------


def test_blocks_begin_and_end_around_each_kind_and_spaces_alone_are_none():
    request = MessagesRequest(messages=[])
    blocks = MessageBlocks(request)
    calls = [ToolCall("a", FunctionCall("f", '{"x"')), ToolCall(None, FunctionCall(None, ": 1}")),
             ToolCall("b", FunctionCall("g", "[1"), index=1)]  # fmt: skip
    given = [
        CompletionOutput(reasoning_content="hm"), CompletionOutput(text="\n\n"), CompletionOutput(text=" so"),
        CompletionOutput(text="\n"), CompletionOutput(tool_calls=calls[:2]), CompletionOutput(tool_calls=calls[2:]),
    ]  # fmt: skip
    events = [event for answer in given for event in blocks.feed(answer)] + list(blocks.close())
    assert [block.type for block in blocks.done] == ["thinking", "text", "tool_use", "tool_use"]
    assert blocks.done[1].text == "\n\n so\n"
    assert [block.input for block in blocks.done[2:]] == [{"x": 1}, {"INVALID_JSON": "[1"}]
    opened = [event.index for event in events if event.type == "content_block_start"]
    assert opened == [event.index for event in events if event.type == "content_block_stop"] == [0, 1, 2, 3]
    assert stop_of(request, "tool_calls", None, 3, has_calls=True) == ("tool_use", None)
    assert stop_of(request, "stop", "repetition", 3, has_calls=False) == ("end_turn", None)
    assert "a loop" in loop_notice(CompletionOutput(stop_reason="repetition"))
    assert loop_notice(CompletionOutput(stop_reason="repetition"), ["repetition"]) == "", "the client's own stop string"


def test_a_stream_that_fails_ends_with_the_clients_error_event(paced):
    with served_client(paced, request_timeout=1.5) as (_, http):
        body = {"model": "pocket", "max_tokens": 1900, "messages": QUESTION, "stream": True, "ignore_eos": True}
        reply = http.post(URL, json=body, timeout=httpx.Timeout(60))
    *_, last = reply.text.strip().split("\n\n")
    kind, data = last.split("\n")
    assert kind == "event: error" and json.loads(data.removeprefix("data: "))["error"]["type"] == "timeout_error"
