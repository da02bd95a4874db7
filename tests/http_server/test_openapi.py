"""The OpenAPI document is true.

What it says of a sampling parameter is what stands on its field: no type, bound or meaning is written again. What is
made from it by chance is answered with a status and a body that it names.
"""

from typing import Any

import msgspec
import pytest
import requests
from builders.cases import for_each

from penstock import GuidedDecodingParams, RequestError
from penstock.frontend.http.openapi import document
from penstock.frontend.http.requests.parameters import sampling_params
from penstock.frontend.http.schemas.chat import ChatRequest
from penstock.frontend.http.schemas.sampling import _CLOSER, _FORMS, TAKEN, TAKEN_WITH_CHOICES
from penstock.protocol.fields.described import rules_of
from penstock.protocol.parameters.sampling import SamplingParams

SCHEMAS = document("0")["components"]["schemas"]
BODIES = {"ChatRequest": (), "CompletionRequest": (), "ResponsesRequest": TAKEN_WITH_CHOICES}
WORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
KINDS = {int: "integer", float: "number", bool: "boolean", str: "string"}
RULES = rules_of(SamplingParams)
FIELDS = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}


def told(body: str, name: str) -> dict[str, Any]:
    """Of the property; in one dict, without its null."""
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
    with pytest.raises(RequestError, match="guided_decoding and guided_json can't be given together"):
        sampling_params(request, SamplingParams(), None, guided_decoding=call)


# --- requests made from it by chance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cases", [30, pytest.param(2000, marks=pytest.mark.long)])
def test_every_endpoint_is_in_it_and_cases_made_from_it_meet_no_surprise(server, http, cases):
    from builders.openapi_cases import checked  # seconds of imports, which only this test needs

    document = http.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", "/v1/models/{named}", "/tokenize",
        "/detokenize", "/v1/requests", "/v1/requests/{named}", "/health", "/ping", "/metrics",
    }  # fmt: skip
    with requests.Session() as session:
        checked(server.address, session, document, cases)
