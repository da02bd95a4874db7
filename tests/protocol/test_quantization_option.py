"""Quantization as an option: one kind for all layers, or kinds by patterns of their names."""

import pytest
from builders.cases import for_each

from penstock import ConfigError
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.quantization import kinds_of_layers

LAYERS = ["model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj", "model.layers.11.mlp.up_proj", "lm_head"]


def written(value: object) -> str | None:
    return EngineConfig.from_options("m", quantization=value).quantization


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
