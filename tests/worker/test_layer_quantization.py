"""Layers quantized by kinds of their own: while loading, converted first, on one rank and on several."""

import json
from pathlib import Path

import pytest
import torch
from builders.cases import for_each
from builders.compared_models import assert_same_files, logits_of
from builders.compared_models import converted as converted_to
from builders.native_variants import needs_variant
from builders.tiny_model import tiny_model

from penstock.kernels import WeightFormat
from penstock.protocol.conversion import Conversion, read_record
from penstock.protocol.errors import ConfigError
from penstock.protocol.options.quantization import as_quantization
from penstock.worker.backends import select
from penstock.worker.convert.rank_pieces import rank_pieces
from penstock.worker.description.config import read_config
from penstock.worker.description.products import products
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model
from penstock.worker.weights.layer_formats import LayerFormats
from penstock.worker.weights.layouts.find_layout import layout_of
from penstock.worker.weights.weight_bytes import estimated_weight_bytes

MIXED = {"*": "int4", "*.1.self_attn.*": "int8", "*.0.mlp.down_proj": None, "lm_head": "int8"}
MAPPINGS = ["int8", "int4", MIXED, {"model.layers.0.*": "int8"}, {"lm_head": "int4"}, {"*": "int8", "lm_head": None}]


def model_in(folder: Path, is_tied: bool = True) -> Path:
    shape = {"head_dim": 32, "intermediate_size": 128, "tie_word_embeddings": is_tied}
    return tiny_model(folder / f"source-{is_tied}", "qwen3", dtype="bfloat16", **shape)


def converted(source: Path, quantization: object, **options: object) -> Path:
    target = source.parent / f"converted-{len(list(source.parent.iterdir()))}"
    return converted_to(source, target, None if quantization is None else as_quantization(quantization), **options)


def loaded(folder: Path, quantization: object = None, ranks: Parallel | None = None):
    return load_model(folder, quantization=quantization and as_quantization(quantization), ranks=ranks)


def kinds(model) -> dict[str, str]:
    first, second = model.decoder.layers
    found = {
        "0.qkv": first.attention.qkv, "0.o": first.attention.output.own, "0.gate_up": first.mlp.gate_up,
        "0.down": first.mlp.down.own, "1.qkv": second.attention.qkv, "1.down": second.mlp.down.own,
        "head": model.decoder.head.own,
    }  # fmt: skip
    return {name: linear.weight.kind for name, linear in found.items()}


@for_each("family", ["llama", "mistral", "qwen2", "qwen3", "ernie4_5"])
def test_the_products_are_those_that_a_decoder_pulls_from_its_checkpoint(tmp_path, family):
    folder = tiny_model(tmp_path, family)
    config = read_config(folder)
    asked = Conversion(str(folder), str(folder), "", None)
    [pulled] = rank_pieces(folder, config, asked, layout_of)
    names = {f"{layer}.weight" for product in products(config) for layer in product.layers}
    matrices = {name for name, piece in pulled.items() if len(piece.shape) == 2} - {"model.embed_tokens.weight"}
    assert names - {"lm_head.weight"} == matrices - {"lm_head.weight"}
    weights = sum(piece.shape[0] * piece.shape[1] for name, piece in pulled.items() if name in names)
    tied = config.vocab_size * config.hidden_size if config.tie_word_embeddings else 0
    assert sum(product.num_weights for product in products(config)) == weights + tied


@needs_variant
def test_each_layer_gets_the_kind_of_the_last_pattern_that_matches_it(tmp_path):
    found = kinds(loaded(model_in(tmp_path), MIXED))
    assert found == {
        "0.qkv": "int4", "0.o": "int4", "0.gate_up": "int4", "0.down": "bf16",
        "1.qkv": "int8", "1.down": "int4", "head": "int8",
    }  # fmt: skip
    found = kinds(loaded(converted(model_in(tmp_path), "int8"), {"*": "int8", "lm_head": None}))
    assert (found.pop("head"), set(found.values())) == ("bf16", {"int8"})


@needs_variant
@for_each("quantization, is_tied", [*((each, True) for each in MAPPINGS), *((each, False) for each in MAPPINGS[2:])])
def test_a_conversion_and_its_copy_compute_the_bits_of_a_load_that_quantizes(tmp_path, quantization, is_tied):
    source = model_in(tmp_path, is_tied)
    folder = converted(source, quantization)
    expected = loaded(source, quantization)
    found = loaded(folder)
    assert kinds(found) == kinds(expected)
    assert torch.equal(logits_of(found), logits_of(expected))
    assert found.report.leftovers == []
    copied = converted(folder, None)
    assert read_record(copied).quantization == as_quantization(quantization)
    assert_same_files((folder, copied))


@needs_variant
@for_each("is_cut", [False, True])
def test_two_ranks_hold_the_rows_and_inputs_of_one(tmp_path, is_cut):
    source = model_in(tmp_path)
    folder = converted(source, MIXED, group_size=32, tensor_parallel_size=2, is_cut=is_cut)
    for rank in range(2):
        assert kinds(loaded(folder, ranks=Parallel(rank, 2))) == kinds(loaded(source, MIXED, Parallel(rank, 2)))


def test_a_model_can_be_copied_as_it_is_and_cut_as_it_is_once(tmp_path):
    source = model_in(tmp_path, is_tied=False)
    copied = converted(source, None)
    assert_same_files((source, copied))
    assert json.loads((copied / "config.json").read_text()) == json.loads((source / "config.json").read_text())
    assert torch.equal(logits_of(load_model(copied)), logits_of(load_model(source)))
    cut = converted(source, None, tensor_parallel_size=2, is_cut=True)
    assert load_model(cut, ranks=Parallel(1, 2)).report.leftovers == []
    with pytest.raises(ConfigError, match="is cut for 2 ranks already. Convert its original, or copy the whole folder"):
        converted(cut, None)


def test_what_is_written_names_every_layer_once(tmp_path):
    folder = converted(model_in(tmp_path), MIXED)
    written = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert written["format"] == "mixed-precision"
    targets = [target for group in written["config_groups"].values() for target in group["targets"]]
    layers = [layer for product in products(read_config(folder)) for layer in product.layers]
    assert sorted(targets + written["ignore"]) == sorted(layers)
    assert written["ignore"] == ["lm_head", "model.layers.0.mlp.down_proj"]
    record = json.loads((folder / "penstock_conversion.json").read_text())
    assert record["quantization"] == MIXED and list(record["quantization"]) == list(MIXED)


@for_each("wrong", [{"*.q_proj": "int8"}, {"*": "int8", "*.up_proj": None}, {"*.k_proj": "wint8", "*.q*": "int8"}])
@for_each("use", [loaded, converted])
def test_layers_of_one_product_must_agree(tmp_path, wrong, use):
    with pytest.raises(ConfigError, match=r"gives model\.layers\.0\.\w+\.\w+ \w+ and .*computed as one product"):
        use(model_in(tmp_path), wrong)


@for_each("use", [loaded, converted])
def test_a_pattern_that_matches_nothing_is_refused_with_the_layers_that_there_are(tmp_path, use):
    source = model_in(tmp_path)
    with pytest.raises(
        ConfigError, match=r"'transformer\.h\.\*' matches no layer .* model\.layers\.N\.self_attn\.q_proj"
    ):
        use(source, {"*": "int8", "transformer.h.*": "int4"})
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_without_kernels_for_integers_it_is_refused_and_a_conversion_is_computed_in_floats(tmp_path, monkeypatch):
    def none() -> None:
        raise select.LibraryError("no compiler")

    monkeypatch.setattr(select, "load_library", none)
    source = model_in(tmp_path)
    folder = converted(source, MIXED)
    with pytest.raises(ConfigError, match="quantization='int4' needs kernels that are not here"):
        loaded(source, MIXED)
    assert torch.cosine_similarity(logits_of(loaded(folder)), logits_of(loaded(source))).min() > 0.85
    assert torch.equal(logits_of(loaded(source, {"*": None})), logits_of(loaded(source)))


@needs_variant
def test_packed_weights_of_other_kinds_are_another_file(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("penstock.worker.backends.native.backend._WORTH_KEEPING", 0)
    source = model_in(tmp_path)
    quantizations = (None, "int8", {"*": "int8"}, MIXED, {**MIXED, "lm_head": None})
    paths = [loaded(source, quantization).cache.path for quantization in quantizations]
    assert paths[1] == paths[2] and len(set(paths)) == 4


def test_the_least_that_weights_take_follows_each_layers_kind(tmp_path):
    config = read_config(model_in(tmp_path, is_tied=False))
    own, layers = WeightFormat("bf16"), {product.layers[0]: product.num_weights for product in products(config)}
    table = config.vocab_size * config.hidden_size
    formats = LayerFormats(own, {"model.layers.0.mlp.down_proj": WeightFormat("int4"), "lm_head": WeightFormat("int8")})
    expected = 2 * (sum(layers.values()) + table)
    expected -= layers["model.layers.0.mlp.down_proj"] * 3 // 2 + layers["lm_head"]
    assert estimated_weight_bytes(config, formats, 1) == expected
    assert estimated_weight_bytes(config, LayerFormats(own), 2) == (sum(layers.values()) + table)
