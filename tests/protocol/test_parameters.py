"""Parameters of an answer are checked at the line that writes them, in their rule's words."""

import math

import msgspec
import pytest
from builders.cases import for_each
from pydantic import BaseModel

from penstock import ConfigError, GuidedDecodingParams, RequestError, SamplingParams
from penstock.protocol.fields.rules import Rule, integer

WRONG = {
    "temperature": [math.nan, math.inf, -0.1, "warm"], "top_p": [-0.1, 1.5], "top_k": [-2, 1.5], "min_p": [-0.1],
    "presence_penalty": [2.1], "frequency_penalty": [math.nan], "repetition_penalty": [0],
    "max_tokens": [-5, 0, True], "min_tokens": [-1], "n": [10**9, 0], "seed": [-1, 2**63],
    "stop": [[""], [3], ["\ud800"]], "stop_token_ids": [["x"]], "bad_words_ids": [[[]]],
    "logit_bias": [{3: 101}, {-1: 1}], "logprobs": [1.5], "prompt_logprobs": [-2], "ignore_eos": ["yes"],
    "priority": [0.5], "cache_salt": [7, "\ud800"], "no_repeat_ngram_size": [-1, 1025],
    "suppress_repetition_in_generation": [1],
    "early_stop": [3000, {"window_size": 0}, {"threshold": 1.5}, {"window": 3}, {"strategy": "boredom"}],
    "logits_processors_args": [[1], {"name": object()}],
}  # fmt: skip


@for_each("name, value", [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_that_breaks_its_rule_raises_and_names_the_field(name, value):
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


def test_one_string_or_id_stands_for_a_list_and_an_alias_for_its_field():
    params = SamplingParams(stop="END", stop_token_ids=7, eos_token_id=2, logit_bias={"5": -3})
    assert (params.stop, params.stop_token_ids, params.eos_token_id) == (["END"], [7], [2])
    assert params.logit_bias == {5: -3.0}
    assert SamplingParams(frequence_penalty=0.5) == SamplingParams(frequency_penalty=0.5) != SamplingParams()
    assert SamplingParams(max_thinking_tokens=3).reasoning_max_tokens == 3
    assert SamplingParams(bad_words_token_ids=[5, 7]).bad_words_ids == [[5], [7]]
    assert SamplingParams(top_p=0.0) == SamplingParams(temperature=0), "the most likely token alone is left"
    with pytest.raises(RequestError, match="another name of bad_words_ids; give one of them"):
        SamplingParams(bad_words_token_ids=[5], bad_words_ids=[[7]])
    with pytest.raises(RequestError, match="min_tokens=9"):
        SamplingParams(min_tokens=9, max_tokens=3)
    assert SamplingParams(min_tokens=3, max_tokens=3).min_tokens == 3


def test_fields_are_given_by_position_in_fastdeploys_order():
    params = SamplingParams(2, None, 0.5, None, None, 0.7, 0.9, 40, 0.1, 3, ["."], None, None, 64)
    assert params == SamplingParams(n=2, presence_penalty=0.5, temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, seed=3,
                                    stop=["."], max_tokens=64)  # fmt: skip
    for wrong, words in (
        ((1, 1), "'best_of'. All n answers"), ((None,) * 23, "22 values"), ((1, None, "high"), "presence_penalty"),
    ):  # fmt: skip
        with pytest.raises((TypeError, RequestError), match=words):
            SamplingParams(*wrong)
    with pytest.raises(TypeError, match="'n' twice"):
        SamplingParams(1, n=1)


# --- rules -----------------------------------------------------------------------------------------------------------


def positive(value):
    if value < 0:
        raise ValueError
    if value == 0:
        raise RequestError("Zero has a sentence of its own.")
    return integer(value)


RULE = Rule(positive, lambda value: True, "must be a positive number")


@for_each("error", [RequestError, ConfigError, ValueError, TypeError])
def test_a_rules_sentence_is_raised_whatever_its_converter_raised_unless_that_has_one_of_its_own(error):
    for value in (-1, 1.5, "one", None):
        with pytest.raises(error) as raised:
            RULE.checked("count", value, error)
        assert str(raised.value) == f"count={value!r}: must be a positive number."
    with pytest.raises(RequestError, match="Zero has a sentence of its own"):
        RULE.checked("count", 0, error)


# --- shapes ----------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f>"]}
NAMED = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


@for_each("written, settled", [
    ({"guided_json": SCHEMA}, {"json": SCHEMA}),
    ({"guided_regex": "a+"}, {"regex": "a+"}),
    ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
    ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
    ({"guided_json_object": True}, {"json_object": True}),
    ({"structural_tag": TAG}, {"structural_tag": TAG}),
    ({"guided_structural_tag": TAG}, {"structural_tag": TAG}),
    ({"guided_decoding": {"regex": "a+"}}, {"regex": "a+"}),
    ({"response_format": {"type": "json_object"}}, {"json_object": True}),
    ({"response_format": NAMED}, {"json": SCHEMA}),
    ({"response_format": {"type": "structural_tag", **TAG}}, {"structural_tag": {"type": "structural_tag", **TAG}}),
])  # fmt: skip
def test_every_way_to_write_a_shape_means_the_same(written, settled):
    assert SamplingParams(**written) == SamplingParams(guided_decoding=GuidedDecodingParams(**settled))


@for_each("kind, wrong", [
    *((SamplingParams, wrong) for wrong in (
        {"guided_json": {}, "guided_regex": "a"},
        {"guided_choice": ["a"], "response_format": {"type": "json_object"}},
        {"guided_decoding": "json"}, {"guided_decoding": {"jsn": {}}},
        {"response_format": {"type": "yaml"}}, {"reasoning_max_tokens": -1},
    )),
    *((GuidedDecodingParams, wrong) for wrong in (
        {}, {"regex": "a", "choice": ["b"]}, {"regex": 5}, {"choice": [1, 2]}, {"json": [1]},
        {"json": {"const": math.nan}},
    )),
])  # fmt: skip
def test_a_mistake_raises_where_it_is_written(kind, wrong):
    with pytest.raises(RequestError):
        kind(**wrong)


@for_each("name", ["guided_json", "response_format"])
def test_a_model_of_pydantics_is_its_schema_and_its_base_has_none(name):
    class Person(BaseModel):
        age: int

    params = SamplingParams(**{name: Person})
    assert params == SamplingParams(guided_json=Person.model_json_schema())
    for wrong in (BaseModel, int):
        with pytest.raises(RequestError, match="json|response_format"):
            SamplingParams(**{name: wrong})


def test_a_schema_changed_afterwards_changes_nothing_and_without_a_form_there_is_none():
    schema = {"type": "string"}
    params = SamplingParams(guided_json=schema)
    before = msgspec.structs.replace(params)
    schema["type"] = "integer"
    assert params == before

    for nothing in ({}, {"response_format": {"type": "text"}}, {"guided_json_object": False}):
        assert SamplingParams(**nothing).guided_decoding is None


class Text(str):
    """As numpy's strings are."""


@for_each("form", ["regex", "grammar", "choice"])
def test_a_text_of_the_callers_own_class_becomes_a_plain_one(form):
    params = GuidedDecodingParams(**{form: [Text("a")] if form == "choice" else Text("a")})
    assert msgspec.json.decode(msgspec.json.encode(params), type=GuidedDecodingParams) == params
    value = getattr(params, form)
    assert type(value[0] if form == "choice" else value) is str
