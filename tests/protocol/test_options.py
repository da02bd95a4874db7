"""Options of a tree: checked when written, foreign ones accepted with a notice or refused with a sentence."""

import msgspec
import pytest
from builders.cases import for_each

from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import _CHECKS, EngineConfig
from penstock.protocol.options.quantization import kinds_of_layers


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
    [notice] = EngineConfig.notices({"port": 8000, "graph_optimization_config": {}})
    assert notice.startswith("port has no effect")


@for_each("name, value", [
    ("block_size", 48), ("dtype", "int3"), ("kv_cache_dtype", "fp7"), ("kv_cache_memory", "much"),
    ("gpu_memory_utilization", 1.5), ("tensor_parallel_size", 0), ("max_num_seqs", "many"), ("max_model_len", -7),
    ("max_model_len", 0), ("max_model_len", -2), ("max_model_len", True), ("use_cudagraph", "maybe"),
    # These are not built, and refused unless they ask for nothing.
    ("speculative_config", {"method": "ngram"}), ("data_parallel_size", 2),
])  # fmt: skip
def test_an_option_that_breaks_its_rule_raises_and_names_itself(name, value):
    with pytest.raises(ConfigError, match=name):
        settled(**{name: value})


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
