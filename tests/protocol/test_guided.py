"""What shape an answer is to have, in all the ways in which it may be written."""

import msgspec
import pytest

from penstock import GuidedDecodingParams, RequestError, SamplingParams

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f>"]}


@pytest.mark.parametrize(
    ("written", "settled"),
    [
        ({"guided_json": SCHEMA}, {"json": SCHEMA}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        ({"guided_json_object": True}, {"json_object": True}),
        ({"structural_tag": TAG}, {"structural_tag": TAG}),
        ({"guided_structural_tag": TAG}, {"structural_tag": TAG}),
        ({"guided_decoding": {"regex": "a+"}}, {"regex": "a+"}),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            {"json": SCHEMA},
        ),
        ({"response_format": {"type": "structural_tag", **TAG}}, {"structural_tag": {"type": "structural_tag", **TAG}}),
    ],
)
def test_every_way_to_write_a_shape_means_the_same(written, settled):
    assert SamplingParams(**written) == SamplingParams(guided_decoding=GuidedDecodingParams(**settled))


def test_nothing_asked_is_no_shape():
    asked_for_nothing = [{}, {"response_format": {"type": "text"}}, {"guided_json_object": False}]
    assert all(SamplingParams(**each).guided_decoding is None for each in asked_for_nothing)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SamplingParams(guided_json={}, guided_regex="a"),
        lambda: SamplingParams(guided_choice=["a"], response_format={"type": "json_object"}),
        lambda: GuidedDecodingParams(),
        lambda: GuidedDecodingParams(regex="a", choice=["b"]),
        lambda: GuidedDecodingParams(regex=5),
        lambda: GuidedDecodingParams(choice=[1, 2]),
        lambda: GuidedDecodingParams(json=[1]),
        lambda: GuidedDecodingParams(json={"const": float("nan")}),
        lambda: SamplingParams(guided_decoding="json"),
        lambda: SamplingParams(guided_decoding={"jsn": {}}),
        lambda: SamplingParams(response_format={"type": "yaml"}),
        lambda: SamplingParams(reasoning_max_tokens=-1),
    ],
)
def test_a_mistake_raises_where_it_is_written(wrong):
    with pytest.raises(RequestError):
        wrong()


def test_a_schema_changed_afterwards_changes_nothing():
    schema = {"type": "string"}
    params = SamplingParams(guided_json=schema)
    before = msgspec.structs.replace(params)
    schema["type"] = "integer"
    assert params == before


def test_a_pydantic_model_is_its_schema():
    class Model:
        @staticmethod
        def model_json_schema():
            return SCHEMA

    assert GuidedDecodingParams(json=Model) == GuidedDecodingParams(json=SCHEMA)


def test_the_thoughts_limit_has_two_names():
    assert SamplingParams(max_thinking_tokens=3).reasoning_max_tokens == 3


class Text(str):
    """As numpy's strings are."""


@pytest.mark.parametrize("form", ["regex", "grammar", "choice"])
def test_a_text_of_the_callers_own_class_becomes_a_plain_one(form):
    params = GuidedDecodingParams(**{form: [Text("a")] if form == "choice" else Text("a")})
    assert msgspec.json.decode(msgspec.json.encode(params), type=GuidedDecodingParams) == params
    value = getattr(params, form)
    assert type(value[0] if form == "choice" else value) is str
