"""Sampling parameters are checked at the line that writes them."""

import math

import msgspec
import pytest

from penstock.protocol.errors import RequestError
from penstock.protocol.parameters.sampling import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("temperature", "warm"),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", -0.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", math.nan),
        ("repetition_penalty", 0),
        ("max_tokens", -5),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("n", 10**9),
        ("n", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("stop", [""]),
        ("stop", [3]),
        ("stop_token_ids", ["x"]),
        ("bad_words_ids", [[]]),
        ("logit_bias", {3: 101}),
        ("logit_bias", {-1: 1}),
        ("logprobs", 21),
        ("prompt_logprobs", -2),
        ("ignore_eos", "yes"),
        ("priority", 0.5),
        ("cache_salt", 7),
        ("cache_salt", "\ud800"),
        ("stop", ["\ud800"]),
        ("no_repeat_ngram_size", -1),
        ("no_repeat_ngram_size", 1025),
        ("suppress_repetition_in_generation", 1),
        ("early_stop", 3000),
        ("early_stop", {"window_size": 0}),
        ("early_stop", {"threshold": 1.5}),
        ("early_stop", {"window": 3}),
        ("early_stop", {"strategy": "boredom"}),
        ("logits_processors_args", [1]),
        ("logits_processors_args", {"name": object()}),
    ],
)
def test_a_value_that_breaks_its_rule_raises_and_names_the_field(name, value):
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value})


def test_an_unknown_field_raises():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=0.5)


def test_one_string_or_id_stands_for_a_list():
    params = SamplingParams(stop="END", stop_token_ids=7, eos_token_id=2)
    assert (params.stop, params.stop_token_ids, params.eos_token_id) == (["END"], [7], [2])


def test_an_alias_sets_the_field_that_it_stands_for():
    assert SamplingParams(frequence_penalty=0.5).frequency_penalty == 0.5
    assert SamplingParams(frequence_penalty=0.5) == SamplingParams(frequency_penalty=0.5)


def test_min_tokens_beyond_max_tokens_raises():
    with pytest.raises(RequestError, match="min_tokens=9"):
        SamplingParams(min_tokens=9, max_tokens=3)


def test_parameters_survive_the_wire():
    params = SamplingParams(temperature=0.3, stop=["a", "b"], logit_bias={"5": -3}, seed=11, n=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
    assert params.logit_bias == {5: -3.0}
