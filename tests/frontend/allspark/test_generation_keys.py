"""What the keys of a request mean, in every form, and a sentence for what can't be."""

import json
import math
from types import SimpleNamespace

import pytest
from builders.cases import for_each

from penstock import RequestError
from penstock.allspark import ASGenerationConfigBuilder, MultiMediaInfo
from penstock.frontend.allspark.configuration.generation_keys import KEYS, generation_of


def test_every_key_has_a_method_that_sets_it():
    builder = ASGenerationConfigBuilder()
    for key in KEYS.keys() - {"vocab"}:
        assert getattr(builder, key)(1) is builder
        assert builder.build()[key] == 1


def test_keys_become_parameters():
    builder = ASGenerationConfigBuilder(seed=5).temperature(0.7).top_k(50).top_p(0.9).max_length(40).min_length(3)
    builder.stop_words_ids([[1, 2], [3]]).bad_words_ids([[4]]).no_repeat_ngram_size(3).repetition_penalty(1.2)
    builder.presence_penalty(0.5).suppress_repetition_in_generation(True).early_stopping(False).lora_name("a")
    params = generation_of(builder.log_probs(True, 2).eos_token_id([7, 8]).uuid("mine")).params
    assert (params.temperature, params.top_k, params.top_p, params.seed) == (0.7, 50, 0.9, 5)
    assert (params.max_length, params.min_length, params.no_repeat_ngram_size) == (40, 3, 3)
    assert (params.stop_words_ids, params.bad_words_ids, params.eos_token_id) == ([[1, 2], [3]], [[4]], [7, 8])
    assert (params.repetition_penalty, params.presence_penalty) == (1.2, 0.5)
    assert params.suppress_repetition_in_generation and params.ignore_eos and params.lora_name == "a"
    assert params.logprobs == 2 and not params.detokenize
    assert generation_of(builder).name == "mine"
    assert generation_of({"lora_name": ""}).params.lora_name is None
    greedy = generation_of(ASGenerationConfigBuilder().do_sample(False).temperature(0.9)).params
    assert greedy.is_greedy and greedy.eos_token_id is None, "an end token of 0 is the model's own"


def test_beams_count_the_prompt_into_their_length():
    generation = generation_of({"num_beams": 4, "length_penalty": 0.5, "max_length": 30, "early_stopping": False})
    beams = generation.params_for(10)
    assert (beams.beam_width, beams.max_tokens, beams.length_penalty, beams.ignore_eos) == (4, 20, 0.5, True)
    with pytest.raises(RequestError, match="leaves no token"):
        generation.params_for(30)


@for_each(
    "key, value",
    [
        ("stop_words_ids", [[1]]), ("response_format", {"type": "json_object"}),
        ("repetition_penalty", 1.2), ("presence_penalty", 0.5), ("frequency_penalty", 0.5), ("logprobs", True),
        ("no_repeat_ngram_size", 3), ("bad_words_ids", [[4]]), ("eos_token_id", 7), ("min_length", 3),
    ],
)  # fmt: skip
def test_what_a_beam_search_does_not_know_is_refused_by_its_name(key, value):
    with pytest.raises(RequestError, match=f"num_beams=3: a beam search knows no {key}; leave it out"):
        generation_of({"num_beams": 3, key: value})
    assert generation_of({key: value}).beams is None


def test_values_that_change_nothing_and_a_models_defaults_are_taken_beside_beams():
    settings = {
        "lora_name": None, "stop_words_ids": [], "response_format": {"type": "text"}, "repetition_penalty": 1.0,
        "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": False, "top_logprobs": 2, "min_length": 0,
        "no_repeat_ngram_size": 0, "bad_words_ids": [], "eos_token_id": 0, "do_sample": True, "temperature": 0.7,
        "top_k": 20, "top_p": 0.8, "seed": 5, "num_return_sequences": 1, "uuid": "mine", "vocab_type": "BPE",
        "suppress_repetition_in_generation": True, "num_beams": 3,
    }  # fmt: skip
    assert generation_of(settings).beams.beam_width == 3
    assert generation_of(ASGenerationConfigBuilder().update(settings)).beams.beam_width == 3
    assert generation_of({"lora_name": "mine", "num_beams": 2}).params.lora_name == "mine"
    defaults = ASGenerationConfigBuilder({"eos_token_id": [1, 2], "repetition_penalty": 1.05}).num_beams(3)
    assert generation_of(defaults).beams.beam_width == 3
    with pytest.raises(RequestError, match="knows no repetition_penalty"):
        generation_of(defaults.repetition_penalty(1.2))


TRANSFORMERS = {
    "do_sample": True, "top_k": 20, "eos_token_id": [1, 2], "max_length": 20, "bos_token_id": 3, "top_p": None,
}  # fmt: skip


@for_each("config", [SimpleNamespace(to_dict=lambda: TRANSFORMERS), TRANSFORMERS])
def test_a_configuration_of_transformers_gives_what_is_of_use(config):
    assert ASGenerationConfigBuilder(config).build() == {"do_sample": True, "top_k": 20, "eos_token_id": [1, 2]}
    assert generation_of(ASGenerationConfigBuilder(config)).params.eos_token_id == [1, 2]
    assert generation_of(ASGenerationConfigBuilder(config, eos_token_id=7)).params.eos_token_id == [7]
    lengths = generation_of(ASGenerationConfigBuilder({"max_new_tokens": 5, "min_p": 0.1})).params
    assert (lengths.max_tokens, lengths.min_p) == (5, 0.1)


@for_each("config, words", [
    ({"temprature": 1}, "Did you mean temperature"), ({"temperature": math.nan}, "temperature=nan"),
    ({"top_p": 2}, "top_p=2"), ({"mm_info": {}}, "own encoder.*multimodal_data"),
    ({"num_return_sequences": 2}, "one answer"),
    (ASGenerationConfigBuilder({"num_return_sequences": 2}), "num_return_sequences"),
    ({"num_beams": 0}, "^num_beams=0"), ({"num_beams": "x"}, "^num_beams="),
    ({"logprobs": True, "top_logprobs": 1.5}, "^top_logprobs="),
    *(
        ({**other, "temperature": value}, "temperature")
        for value in (math.nan, -1, "0.7", [])
        for other in ({"do_sample": False}, {"num_beams": 2}, {})
    ),
    ({"logprobs": True, "top_logprobs": 50}, "logprobs=50"), ({"uuid": 3}, "must be text"),
    (None, "a builder or a dict"),
])  # fmt: skip
def test_a_request_that_cannot_be_is_refused_with_a_sentence(config, words):
    with pytest.raises(RequestError, match=words):
        generation_of(config)
    with pytest.raises(RequestError, match="multimodal_data"):
        MultiMediaInfo()


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@for_each("schema", [SCHEMA, json.dumps(SCHEMA)])
def test_a_schema_beside_the_type_shapes_the_answer_as_dashinfer_has_it(schema):
    config = {"response_format": {"type": "json_object", "json_schema": schema}}
    found = generation_of(config).params.guided_decoding
    assert json.loads(found.json) == SCHEMA
    free = generation_of({"response_format": {"type": "json_object", "json_schema": ""}}).params
    assert free.guided_decoding.json_object
