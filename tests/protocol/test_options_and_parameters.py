"""Parameters of an answer and options of a tree are checked at the line that writes them, in their rule's words."""

import math

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from penstock import ConfigError, GuidedDecodingParams, RequestError, SamplingParams
from penstock.protocol.fields.rules import Rule, integer
from penstock.protocol.options.config import _CHECKS, EngineConfig
from penstock.protocol.options.foreign_options import notices
from penstock.protocol.options.quantization import kinds_of_layers

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


# --- options of a tree -----------------------------------------------------------------------------------------------


def settled(**options) -> EngineConfig:
    return EngineConfig.from_options("m", **options)


def test_every_option_has_a_check_and_a_sentence():
    fields = msgspec.structs.fields(EngineConfig)
    assert {field.name for field in fields} == set(_CHECKS)
    assert [field.name for field in fields if "description=" not in repr(field.type)] == []


def test_every_spelling_of_an_option_means_the_same_and_survives_the_wire():
    sizes = {"4GiB": 4 * 2**30, "512mib": 512 * 2**20, "2GB": 2 * 10**9, 4096: 4096, "1.5k": 1500}
    assert {text: settled(kv_cache_memory=text).kv_cache_memory for text in sizes} == sizes
    assert {settled(dtype=name).dtype for name in ("bf16", "bfloat16", "torch.bfloat16")} == {"bfloat16"}
    assert settled(max_model_len=-1).max_model_len is None
    settled(quantization=None, connect="never", data_parallel_size=1, splitwise_role="mixed")  # ask for nothing
    config = settled(devices=[0, 1], trace="/x", seed=3, port=8000)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig) == config
    [notice] = notices({"port": 8000, "graph_optimization_config": {"use_cudagraph": True}})
    assert notice.startswith("port has no effect")


@for_each("name, value", [
    ("block_size", 48), ("dtype", "int3"), ("kv_cache_dtype", "fp7"), ("kv_cache_memory", "much"),
    ("gpu_memory_utilization", 1.5), ("tensor_parallel_size", 0), ("max_num_seqs", "many"), ("max_model_len", -7),
    ("max_model_len", 0), ("max_model_len", -2), ("max_model_len", True), ("use_cudagraph", "maybe"),
    *(("data_parallel_size", value) for value in (0, -1, 1.5, "2", True, [2], 10**30)),
    *(("devices", value) for value in ("0,1", [[]], [0, [1]], [[0], []], [[[0]]], [["0"]], [True], [-1], [[1.5]], 3.5)),
    # These are not built, and refused unless they ask for nothing.
    ("data_parallel_rank", 1), ("data_parallel_size_local", 2),
])  # fmt: skip
def test_an_option_that_breaks_its_rule_raises_and_names_itself(name, value):
    with pytest.raises(ConfigError, match=name):
        settled(**{name: value})


@given(value=st.one_of(st.integers(), st.integers(-9, 300), st.floats(), st.text(), st.booleans()))
@example(10**5000)
def test_so_many_ranks_as_no_model_has_heads_are_refused_with_what_limits_them(value):
    if not isinstance(value, bool) and value in range(1, 257):
        assert settled(tensor_parallel_size=value).tensor_parallel_size == value
    else:
        with pytest.raises(ConfigError, match="from 1 to 256 that divides the model's attention heads"):
            settled(tensor_parallel_size=value)


@for_each("options, words", [
    ({"data_parallel_size": 3, "num_threads": 2}, "num_threads=2 is for all trees, and data_parallel_size=3 needs 3"),
    ({"data_parallel_size": 2, "tensor_parallel_size": 2, "num_threads": 3}, "with tensor_parallel_size=2 needs 4"),
    ({"data_parallel_size": 2, "devices": [[0], [1], [2]]}, "a list for each tree"),
    ({"devices": [[0], [1]]}, "data_parallel_size=1"),
    ({"data_parallel_size": 2, "trace": "/x"}, "trace=… writes down one tree"),
    ({"data_parallel_size": 2, "record": "/x"}, "record=… writes down one tree"),
])  # fmt: skip
def test_options_that_several_trees_can_not_share_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        settled(**options)


def test_devices_are_given_for_all_trees_or_for_each():
    assert settled(devices=2).own_devices == [2] and settled(devices=[[1, 2]]).own_devices == [1, 2]
    each = settled(data_parallel_size=2, devices=((0, 1), range(2, 4)))
    assert each.devices == [[0, 1], [2, 3]] and each.own_devices == [0, 1, 2, 3]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(each), type=EngineConfig) == each


@for_each("written", [True, False, 1, 0])
def test_cudagraphs_are_the_opposite_of_eager_steps(written):
    assert settled(use_cudagraph=written).enforce_eager is not bool(written)
    assert EngineConfig.given({"use_cudagraph": written, "quiet": None}) == {"enforce_eager": not written}
    assert settled(use_cudagraph=None, enforce_eager=True).enforce_eager
    with pytest.raises(ConfigError, match="use_cudagraph"):
        settled(use_cudagraph=written, enforce_eager=bool(written))


def test_the_utilization_can_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("BFC_MEM_RATIO", "0.5")
    assert settled().gpu_memory_utilization == 0.5
    assert settled(gpu_memory_utilization=0.7).gpu_memory_utilization == 0.7
    monkeypatch.setenv("BFC_MEM_RATIO", "half")
    with pytest.raises(ConfigError, match="gpu_memory_utilization='half'"):
        settled()


@for_each("written, own", [
    ({"load_choices": "default_v1"}, {"load_format": "auto"}), ({"load_choices": "dummy"}, {"load_format": "dummy"}),
    ({"enable_early_stop": True}, {"early_stop_config": {}}),
    ({"enable_early_stop": True, "early_stop_config": {"window_size": 9}}, {"early_stop_config": {"window_size": 9}}),
    ({"graph_optimization_config": {"use_cudagraph": False}}, {"enforce_eager": True}),
    ({"graph_optimization_config": '{"cudagraph_capture_sizes": [1, 2]}'}, {"graph_batch_sizes": [1, 2]}),
    ({"graph_optimization_config": {"use_cudagraph": True, "graph_opt_level": 0}}, {"enforce_eager": False}),
    ({"quantization": {"dense_quant_type": "wint8", "moe_quant_type": "wint4"}},
     {"quantization": {"*": "wint8", "*.experts.*": "wint4"}}),
    ({"tool_parser": "hermes"}, {"tool_call_parser": "hermes"}), ({"guided_decoding_backend": "xgrammar"}, {}),
])  # fmt: skip
def test_fastdeploys_form_of_an_option_means_the_same(written, own):
    assert settled(**written) == settled(**own)


@for_each("is_on, config", [(False, {"window_size": 9}), (True, {"enable_early_stop": False})])
def test_a_switch_that_contradicts_its_configuration_is_refused(is_on, config):
    with pytest.raises(ConfigError, match=f"enable_early_stop={is_on} contradicts"):
        settled(enable_early_stop=is_on, early_stop_config=config)


@for_each("name, value, words", [
    ("graph_optimization_config", "nonsense", "must be a dict"), ("graph_optimization_config", 5, "must be a dict"),
    ("graph_optimization_config", {"use_cudagrap": True}, "Did you mean use_cudagraph"),
    ("guided_decoding_backend", "nonsense", "must be one of auto, off"), ("load_choices", "fast", "must be one of"),
    ("enable_early_stop", "yes", "True or False"), ("quantization", {"dense_quant_type": "w4a8"}, "w4a8"),
    ("quantization", {"dense_quant_typ": "wint8", "moe_quant_type": "wint4"}, "Did you mean dense_quant_type"),
    ("quantization", {"quantization": "mix_quant"}, "give dense_quant_type, moe_quant_type or both: int8"),
])  # fmt: skip
def test_a_form_that_fastdeploy_has_not_either_is_refused(name, value, words):
    with pytest.raises(ConfigError, match=words):
        settled(**{name: value})
    if name == "guided_decoding_backend":
        assert [line.split(" has")[0] for line in notices({name: "xgrammar"})] == [name]
        assert notices({name: "auto", "port": None}) == []


# --- quantization: a kind for all layers, or kinds by patterns -------------------------------------------------------

LAYERS = ["model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj", "model.layers.11.mlp.up_proj", "lm_head"]


def written(value: object) -> str | None:
    return settled(quantization=value).quantization


def kinds(value: object) -> list[str | None]:
    return list(kinds_of_layers(written(value), LAYERS).values())


@for_each("value, expected", [
    (None, [None] * 4),
    ({}, [None] * 4),
    ("wint8", ["wint8"] * 4),
    ({"*": "int4"}, ["int4"] * 4),
    ({"*": "int4", "*.down_proj": None, "lm_head": "int8"}, ["int4", None, "int4", "int8"]),
    ({"lm_head": "int8", "*": "int4"}, ["int4"] * 4),
    ({"model.layers.1?.*": "int8"}, [None, None, "int8", None]),
    ({"model.layers.[0-9].*": "int8"}, ["int8", "int8", None, None]),
    ({"*.down_proj.weight": "int8"}, [None, "int8", None, None]),
    ({"*": "int8", "*.experts.*": "int4"}, ["int8"] * 4),
    ({"quantization": "mix_quant", "dense_quant_type": "wint8"}, ["wint8"] * 4),
])  # fmt: skip
def test_of_several_patterns_that_match_a_layer_the_last_one_counts(value, expected):
    assert kinds(value) == expected


def test_a_mapping_is_the_same_as_its_json_keeps_its_order_and_names_layers_that_there_are():
    mapping = {"*": "int4", "lm_head": None}
    assert written(mapping) == written('{"*":"int4","lm_head":null}') == '{"*": "int4", "lm_head": null}'
    assert written(dict(reversed(mapping.items()))) != written(mapping)
    with pytest.raises(ConfigError) as refused:
        kinds({"*": "int8", "*.dwn_proj": "int4"})
    assert str(refused.value) == (
        "quantization: '*.dwn_proj' matches no layer of this model, which has model.layers.N.mlp.up_proj, "
        "model.layers.N.mlp.down_proj, lm_head (N is a number)."
    )


@for_each("mapping", [{"*.experts.*": "int8"}, {"quantization": "mix_quant", "moe_quant_type": "wint4"}])
def test_experts_alone_of_a_model_without_are_no_layer_of_it(mapping):
    with pytest.raises(ConfigError, match=r"'\*\.experts\.\*' matches no layer of this model"):
        kinds(mapping)


NEITHER = r"^quantization=.*must be one of int8, int4, wint8, wint4, or a mapping"


@for_each("value, sentence", [
    *((value, NEITHER) for value in ("int3", '{"*"', '["int8"]', 8, ["int8"], [("*", "int8")])),
    ({"lm_head": "int3"}, r"quantization: 'lm_head' is given 'int3', and can be given int8, int4, .* or None"),
    ({"*": 8}, r"'\*' is given 8"),
    ({"*": ["int8"]}, r"'\*' is given \['int8'\]"),
    ({7: "int8"}, r"7 is no pattern of layers' names, such as '\*\.down_proj'"),
])  # fmt: skip
def test_what_is_neither_a_kind_nor_a_mapping_to_kinds_is_refused_with_what_it_can_be(value, sentence):
    with pytest.raises(ConfigError, match=sentence):
        written(value)
