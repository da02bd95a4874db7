"""The OpenAPI document is true.

What it says of a sampling parameter is what stands on its field: no type, bound or meaning is written again. What is
made from it by chance is answered with a status and a body that it names.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
import pytest
from builders.cases import for_each

from penstock import GuidedDecodingParams, RequestError
from penstock.frontend.http.answers.errors import ApiError
from penstock.frontend.http.openapi import document
from penstock.frontend.http.requests.decoding import decoded
from penstock.frontend.http.requests.parameters import sampling_params
from penstock.frontend.http.requests.request_parts import thinking_of
from penstock.frontend.http.schemas.chat import ChatRequest
from penstock.frontend.http.schemas.completions import CompletionRequest
from penstock.frontend.http.schemas.foreign_fields import FOREIGN_FIELDS, HINTS, RENAMED
from penstock.frontend.http.schemas.messages import MessagesRequest
from penstock.frontend.http.schemas.responses import ResponsesRequest
from penstock.frontend.http.schemas.sampling import _CLOSER, _FORMS, TAKEN, TAKEN_WITH_CHOICES
from penstock.frontend.requests.request import guarded
from penstock.frontend.rows.batch_line import BatchLine
from penstock.protocol.fields.described import rules_of
from penstock.protocol.parameters.early_stop import CYCLE_GUARD, EarlyStop
from penstock.protocol.parameters.sampling import SamplingParams

SCHEMAS = document("0")["components"]["schemas"]
BODIES = {"ChatRequest": (), "CompletionRequest": (), "ResponsesRequest": TAKEN_WITH_CHOICES,
          "MessagesRequest": TAKEN_WITH_CHOICES}  # fmt: skip
WORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
KINDS = {int: "integer", float: "number", bool: "boolean", str: "string"}
RULES = rules_of(SamplingParams)
FIELDS = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}


def told(body: str, name: str) -> dict[str, Any]:
    described = SCHEMAS[body]["properties"][name]
    [form] = [each for each in described["anyOf"] if each != {"type": "null"}] if name not in _FORMS else [{}]
    return {**form, "description": described["description"]}


@for_each("body", BODIES)
@for_each("name", [*TAKEN, *TAKEN_WITH_CHOICES])
def test_a_parameter_is_told_as_its_field_says_it(body, name):
    if name in BODIES[body]:
        assert name not in SCHEMAS[body]["properties"]
        return
    closer, found = _CLOSER.get(name, {}), told(body, name)
    assert found["description"] == closer.get("description", found["description"])
    if "description" not in closer and name != "structural_tag":
        assert found["description"] == FIELDS[name].__metadata__[0].description
    kind = next(iter(set(getattr(FIELDS[name].__origin__, "__args__", ())) & KINDS.keys()), FIELDS[name].__origin__)
    if kind not in KINDS or name in _FORMS:
        return
    bounds = {**(RULES[name].bounds if name in RULES else {}), **closer}
    assert found["type"] == KINDS[kind]
    assert {word: found.get(word) for word in WORDS.values()} == {word: bounds.get(of) for of, word in WORDS.items()}


@for_each("name", [name for name in _CLOSER if name in RULES])
def test_what_a_client_may_ask_for_a_script_may_too(name):
    bounds = RULES[name].bounds
    for bound, value in _CLOSER[name].items():
        assert bound not in bounds or (value >= bounds[bound] if bound in ("ge", "gt") else value <= bounds[bound])
        if bound in WORDS:
            RULES[name].checked(name, value)


def test_items_of_lists_and_tables_are_bounded_as_their_rule_says():
    ids, biases = told("ChatRequest", "stop_token_ids"), told("ChatRequest", "logit_bias")
    assert ids["items"] == {"type": "integer", "minimum": 0, "maximum": 2**31 - 1} and ids["maxItems"] == 1024
    assert biases["additionalProperties"] == {"type": "number", "minimum": -100, "maximum": 100}


@for_each("schema", [{"type": "integer"}, '{"type": "integer"}'])
def test_a_schema_beside_the_shape_of_a_call_is_refused_and_not_taken_instead(schema):
    request, call = ChatRequest(messages=[], guided_json=schema), GuidedDecodingParams(json={"type": "object"})
    assert sampling_params(request, SamplingParams(), None).guided_decoding == GuidedDecodingParams(json=schema)
    with pytest.raises(ApiError, match="guided_json and a tool_choice that asks for a call can't be given together"):
        sampling_params(request, SamplingParams(), None, call_shape=call)


@for_each("given, early_stop", [
    ({}, CYCLE_GUARD), ({"early_stop": None}, CYCLE_GUARD), ({"ignore_eos": True}, None),
    ({"early_stop": False}, EarlyStop(enable_early_stop=False)),
    ({"early_stop": {"window_size": 9}}, EarlyStop(window_size=9)),
])  # fmt: skip
def test_an_answer_that_has_become_a_cycle_ends_unless_its_request_says_otherwise(given, early_stop):
    request = decoded(json.dumps({"messages": [{"role": "user", "content": "hi"}], **given}).encode(), ChatRequest)
    params = sampling_params(request, SamplingParams(), None)
    assert guarded(params).early_stop == early_stop
    assert params.early_stop == (None if early_stop is CYCLE_GUARD else early_stop), "those of a batch have no guard"


# --- fields of others ------------------------------------------------------------------------------------------------

MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}


def kinds_of_requests() -> Iterator[tuple[type[msgspec.Struct], type, dict[str, Any]]]:
    """Ours, the client's, and the least that is one."""
    from anthropic.types import message_create_params
    from openai.types import completion_create_params as completions
    from openai.types.chat import completion_create_params
    from openai.types.responses import response_create_params

    yield ChatRequest, completion_create_params.CompletionCreateParamsBase, MESSAGES
    yield CompletionRequest, completions.CompletionCreateParamsBase, {"prompt": "hi"}
    yield ResponsesRequest, response_create_params.ResponseCreateParamsBase, {"input": "hi"}
    yield MessagesRequest, message_create_params.MessageCreateParamsBase, MESSAGES


def refusal(kind: type[msgspec.Struct], fields: dict[str, Any]) -> str:
    """What is said against a request; empty where it is taken."""
    try:
        request = decoded(json.dumps(fields).encode(), kind)
        sampling_params(request, SamplingParams(), None)
    except (ApiError, RequestError) as error:
        return str(error)
    return ""


@for_each("kind, theirs, least", kinds_of_requests)
def test_every_field_of_openai_and_of_other_servers_may_be_null_or_what_means_nothing(kind, theirs, least):
    names = {*get_type_hints(theirs), *FOREIGN_FIELDS, *HINTS, *RENAMED} - least.keys()
    assert {name: said for name in names if (said := refusal(kind, {**least, name: None}))} == {}
    assert refusal(kind, {**least, **dict.fromkeys(names)}) == ""
    own = kind.__annotations__
    for name, row in FOREIGN_FIELDS.items():
        if name in own or name in least:
            continue
        for value in row.neutral:
            assert refusal(kind, {**least, name: value}) == ""
        for value in (12345, "what?", ["what?"], {"what?": 1}, 0.5):
            said = refusal(kind, {**least, name: value})
            assert said.startswith(f"{name}={value!r} is not supported: "), f"{name}={value}: {said}"


@for_each("theirs, ours", list(RENAMED.items()))
def test_another_name_of_a_parameter_has_its_meaning_and_its_rules(theirs, ours):
    given = {"guided_json": {"type": "integer"}, "guided_grammar": 'start: "a"', "guided_regex": "a"}.get(ours, 1)
    given = True if ours == "include_stop_str_in_output" else given
    bodies = [json.dumps({"prompt": "hi", name: given}).encode() for name in (theirs, ours)]
    first, second = [sampling_params(decoded(each, CompletionRequest), SamplingParams(), None) for each in bodies]
    assert first == second
    said = refusal(CompletionRequest, {"prompt": "hi", theirs: ["wrong"]})
    assert theirs in said and not re.search(rf"\b({ours}|guided_decoding)\b", said), "a field that nobody sent"


@for_each("fields, words", [
    ({"structured_outputs": {"json": None, "regex": None, "json_object": False}}, ""),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs takes exactly one of"),
    ({"structured_outputs": {"regex": 5}}, "structured_outputs: regex must be a string"),
    ({"grammar": "start: 'a'"}, "grammar and a tool_choice that asks for a call can't be given together"),
    ({"response_format": {"type": "text", "json_schema": None}}, ""),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": None}}}, "response_format "),
])  # fmt: skip
def test_a_shape_is_refused_by_the_name_that_was_sent_and_one_that_is_null_is_none(fields, words):
    request = decoded(json.dumps({**MESSAGES, **fields}).encode(), ChatRequest)
    call = GuidedDecodingParams(json={"type": "object"})
    try:
        assert sampling_params(request, SamplingParams(), None, call_shape=call).guided_decoding == call
        said = ""
    except (ApiError, RequestError) as error:
        said = str(error)
    assert said.startswith(words) and bool(said) == bool(words)


@for_each("given, options, budget, is_shown", [
    ({"enable_thinking": False}, {"enable_thinking": False}, None, True),
    ({"think": True, "thinking": {"type": "enabled", "budget_tokens": 9}}, {"enable_thinking": True}, 9, True),
    ({"reasoning": {"effort": "low", "max_tokens": 7, "exclude": True}}, {"reasoning_effort": "low"}, 7, False),
    ({"reasoning": {"effort": "none"}}, {"enable_thinking": False, "reasoning_effort": "none"}, None, True),
    ({"reasoning_effort": "none"}, {"enable_thinking": False, "reasoning_effort": "none"}, None, True),
    ({"think": True, "chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}, None, True),
    ({"verbosity": "low", "include_reasoning": False}, {"verbosity": "low"}, None, False),
])  # fmt: skip
def test_every_way_to_say_how_much_to_think_reaches_the_template(given, options, budget, is_shown):
    request = decoded(json.dumps({**MESSAGES, **given}).encode(), ChatRequest)
    assert (*thinking_of(request), request.shows_thoughts) == (options, budget, is_shown)
    value = {"custom_id": "", "method": "POST", "url": "/v1/chat/completions", "body": {**MESSAGES, **given}}
    conversation, params = BatchLine.of(value).prompt_and_params(SamplingParams())
    assert (conversation.template_options, params.reasoning_max_tokens) == (options, budget)
    if given.keys() <= {"enable_thinking", "think", "thinking", "reasoning", "reasoning_effort"} and is_shown:
        assert thinking_of(decoded(json.dumps({"input": "a", **given}).encode(), ResponsesRequest)) == (options, budget)


@for_each("kind, least", [(ChatRequest, MESSAGES), (ResponsesRequest, {"input": "hi"})])
def test_a_misspelt_word_about_reasoning_is_refused_with_the_nearest(kind, least):
    assert "Did you mean effort?" in refusal(kind, {**least, "reasoning": {"efort": "low"}})
    assert "Did you mean minimal?" in refusal(kind, {**least, "reasoning": {"effort": "minimum"}})
    assert refusal(kind, {**least, "reasoning": dict.fromkeys(("effort", "summary", "generate_summary"))}) == ""


# --- requests made from it by chance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cases", [30, pytest.param(2000, marks=pytest.mark.long)])
def test_every_endpoint_is_in_it_and_cases_made_from_it_meet_no_surprise(server, http, cases):
    import requests
    from builders.openapi_cases import checked  # seconds of imports, which only this test needs

    document = http.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/v1/models/{named}", "/tokenize",
        "/v1/messages", "/v1/messages/count_tokens",
        "/api/chat", "/api/generate", "/api/tags", "/api/show", "/api/ps", "/api/version",
        "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/v1/classify", "/classify",
        "/pooling",
        "/v1/decisions", "/v2/embed", "/api/embed", "/api/embeddings",
        "/models/load", "/models/unload",
        "/v1/files", "/v1/files/{named}", "/v1/files/{named}/content",
        "/v1/batches", "/v1/batches/{named}", "/v1/batches/{named}/cancel",
        "/detokenize", "/v1/requests", "/v1/requests/{named}", "/health", "/ready", "/ping", "/metrics",
        "/load", "/v1/load", "/v1/loads",
    }  # fmt: skip
    with requests.Session() as session:
        checked(server.address, session, document, cases)
