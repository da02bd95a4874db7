"""Checkpoints that are quantized already: each layout is read as its tool meant it, whole or in parts, and computed."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import logits_of, opened
from builders.native_variants import available_variants
from builders.quantized_model import FORMS, MATRICES, Form, quantized_model
from builders.quantized_parts import equal, floats
from builders.tiny_configs import ABSENT, change_config
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.kernels.stored.quantized import QuantizedPart
from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config

QUERY, QUERY_SHAPE = "model.layers.0.self_attn.q_proj.weight", (128, 64)
DOWN, DOWN_SHAPE = "model.layers.0.mlp.down_proj.weight", (64, 112)

each_form = for_each("form", FORMS, ids=str)


def tensors_of(model: Path) -> dict[str, torch.Tensor]:
    return load_file(model / "model.safetensors")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Callable[[Form], tuple[Path, Path]]:
    """The checkpoint in a form, and its twin in floats; each is made once, so tests leave them as they are."""
    return cache(lambda form: quantized_model(tmp_path_factory.mktemp(str(form)), form))


def shares() -> Iterator[tuple[Form, tuple[int, int, int] | None]]:
    """All, some outputs, or some inputs where they can be divided."""
    for form in FORMS:
        yield from ((form, share) for share in (None, (0, 0, 48), (0, 21, 43), (0, 95, 96), (1, 0, 32), (1, 32, 64)))
        if form.is_ordered:  # whose groups lie anywhere
            yield from ((form, (1, first, last)) for first, last in ((0, 5), (5, 47), (63, 64)))


@for_each("form, share", list(shares()))
def test_a_matrix_and_a_ranks_share_mean_what_the_tool_wrote_and_symmetric_ones_bring_no_zeros(written, form, share):
    model, twin = written(form)
    part, expected = opened(model).matrix(QUERY, QUERY_SHAPE, share), tensors_of(twin)[QUERY]
    assert isinstance(part, QuantizedPart)
    assert (part.bits, part.zeros is None) == (form.bits, form.is_symmetric)
    dim, first, last = share or (0, 0, QUERY_SHAPE[0])
    assert torch.equal(floats(part), expected.narrow(dim, first, last - first))


@for_each("layout", ["gptq", "awq", "pack-quantized"])
def test_inputs_are_divided_between_groups_only_the_last_of_which_may_be_shorter(written, layout):
    checkpoint = opened(written(Form(layout))[0])
    whole = floats(checkpoint.matrix(DOWN, DOWN_SHAPE))
    assert torch.equal(floats(checkpoint.matrix(DOWN, DOWN_SHAPE, (1, 64, 112))), whole[:, 64:])
    with pytest.raises(ConfigError, match=r"down_proj .* 32 inputs.* at 56 and 112, within such a group"):
        checkpoint.matrix(DOWN, DOWN_SHAPE, (1, 56, 112))


@each_form
def test_it_gives_the_logits_of_its_twin_but_for_the_activations_that_native_kernels_round(written, form):
    model, twin = (load_on("fast", folder) for folder in written(form))
    assert model.report.leftovers == []
    expected = logits_of(twin)
    assert torch.allclose(logits_of(model), expected, atol=1e-5)
    if available_variants():
        model = load_on("native", written(form)[0])
        assert model.report.leftovers == []
        assert torch.cosine_similarity(logits_of(model), expected).min() > 0.998


def test_a_file_of_its_own_as_the_first_tools_wrote_it_is_read_or_named(tmp_path):
    model, twin = quantized_model(tmp_path, Form("gptq", is_ordered=True))
    change_config(model, quantization_config=ABSENT)
    own = {"bits": 4, "group_size": 32, "damp_percent": 0.01, "desc_act": True, "sym": True}
    name = "model.layers.1.mlp.down_proj.weight"
    for more in ({}, {"quant_method": "gptq"}):
        (model / "quantize_config.json").write_text(json.dumps(own | more))
        part = opened(model).matrix(name, DOWN_SHAPE)
        assert torch.equal(floats(part), tensors_of(twin)[name]), more
    for text in ("{", "[]", '{"bits": 3}', '{"group_size": 128}', '{"bits": 4, "group_size": "x"}'):
        (model / "quantize_config.json").write_text(text)
        with pytest.raises(ConfigError):
            read_config(model)


@for_each("layout", ["gptq", "awq"])
def test_auto_round_packs_as_one_of_two_others(tmp_path, layout):
    """Its own file has no list of groups; `extra_config` names what has other groups, and what stays floats."""
    model, twin = quantized_model(tmp_path / "most", Form(layout, group_size=32))
    others, others_twin = quantized_model(tmp_path / "some", Form(layout, group_size=16))
    written, widened = tensors_of(model), tensors_of(twin)
    down, key = "model.layers.1.mlp.down_proj", "model.layers.1.self_attn.k_proj"
    kept = {name: each for name, each in written.items() if not name.startswith((down, key)) and "g_idx" not in name}
    kept |= {name: each for name, each in tensors_of(others).items() if name.startswith(down) and "g_idx" not in name}
    widened[f"{down}.weight"] = tensors_of(others_twin)[f"{down}.weight"]
    save_file(kept | {f"{key}.weight": widened[f"{key}.weight"]}, model / "model.safetensors")
    written_by = {
        "autoround_version": "0.14.2", "bits": 4, "data_type": "int", "group_size": 32, "iters": 200, "sym": True,
        "packing_format": f"auto_round:auto_{layout}", "quant_method": "auto-round",
        "extra_config": {key: {"bits": 16, "data_type": "float"}, down: {"bits": 4, "group_size": 16}},
    }  # fmt: skip
    change_config(model, quantization_config=written_by)
    checkpoint = opened(model)
    for module, shape in MATRICES.items():
        name = f"model.layers.1.{module}.weight"
        assert torch.equal(floats(checkpoint.matrix(name, shape)), widened[name]), module
    assert equal(checkpoint.matrix(f"{key}.weight", (64, 64)), widened[f"{key}.weight"])


def test_a_stored_zero_of_the_largest_value_is_zero(tmp_path):
    """GPTQ's first version stores a zero less 1, in four bits."""
    model, _ = quantized_model(tmp_path, Form("gptq"))
    tensors = tensors_of(model)
    tensors["model.layers.0.self_attn.q_proj.qzeros"].fill_(-1)
    save_file(tensors, model / "model.safetensors")
    part = opened(model).matrix(QUERY, QUERY_SHAPE)
    assert part.zeros is not None and not part.zeros.any()


@for_each("damage, sentence", [
    ("scales", r"q_proj has 3 scales for 64 inputs, and config\.json says groups of 32"),
    ("g_idx", r"q_proj\.g_idx does not give every group 32 of the 64 inputs"),
    ("qweight", r"q_proj fills 10 words with 64 values"),
])  # fmt: skip
def test_what_does_not_fit_together_is_named(tmp_path, damage, sentence):
    model, _ = quantized_model(tmp_path, Form("gptq"))
    tensors = tensors_of(model)
    name = f"model.layers.0.self_attn.q_proj.{damage}"
    if damage == "g_idx":
        tensors[name] = tensors[name] * 0
    else:
        tensors[name] = torch.cat((tensors[name], tensors[name][: 1 if damage == "scales" else 2]))
    save_file(tensors, model / "model.safetensors")
    with pytest.raises(ConfigError, match=sentence):
        opened(model).matrix(QUERY, QUERY_SHAPE)


@for_each("layout", ["gptq", "awq", "pack-quantized", "int-quantized"])
def test_another_number_of_outputs_than_the_config_asks_for_is_named(written, layout):
    model, _ = written(Form(layout, bits=8 if layout == "int-quantized" else 4))
    with pytest.raises(ConfigError, match=r"q_proj has 128 outputs, and config\.json asks for 256"):
        opened(model).matrix(QUERY, (256, 64))


COMPRESSED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


def compressed(**weights: object) -> dict[str, object]:
    return COMPRESSED | {"config_groups": {"a": {"weights": WEIGHTS | weights}}}


@for_each("written_config, sentence", [
    ({"quant_method": "hqq"}, r"quantized \(hqq\), and its methods are not among gptq, awq, auto-round"),
    ({}, r"quantized \(an unnamed method\)"),
    ({"group_size": 64, "bits": 4, "mode": "affine"}, r"quantized \(MLX\)"),
    ({"quant_method": "auto-round", "bits": 2}, r"auto-round, 2 bits\)"),
    (
        {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:llm_compressor"},
        r"its packings that are read are auto_round:auto_gptq, auto_round:auto_awq",
    ),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"}, r"auto-round, mx_fp\)"),
    ({"quant_method": "gptq", "bits": 3}, r"gptq, 3 bits\), and 4 and 8 bits are read"),
    ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, r"\(gptq, marlin\)"),
    ({"quant_method": "gptq"}, "not as gptq writes it: it has no 'bits'"),
    ({"quant_method": "gptq", "bits": "4"}, r"gptq, '4' bits\), and 4 and 8 bits are read, written as numbers"),
    ({"quant_method": "gptq", "bits": True}, r"gptq, True bits\)"),
    ({"quant_method": "gptq", "bits": 4, "group_size": "128"}, "group_size must be a whole number, and is '128'"),
    ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "2"}, r"\(gptq, '2'\)"),
    ({"quant_method": "awq", "w_bit": "4"}, r"awq, '4' bits\)"),
    ({"quant_method": "awq", "bits": 4, "version": 2}, r"awq, version 2\)"),
    ({"quant_method": "4"}, r"quantized \('4'\)"),
    ({"quant_method": ["gptq"]}, r"quantized \(\['gptq'\]\)"),
    ("gptq", "quantization_config must be an object, and is 'gptq'"),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {"(": {}}}, "not as gptq writes it"),
    (
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*up_proj": {"bits": 3}}},
        r"quantized \(gptq, dynamic '\+:\.\*up_proj', 3 bits\), and 4 and 8 bits are read",
    ),
    ({"quant_method": "awq", "bits": 4, "version": "gemv"}, r"awq, version gemv\), and only version gemm"),
    (COMPRESSED | {"format": "nvfp4-pack-quantized"}, r"\(compressed-tensors, nvfp4-pack-quantized\)"),
    (COMPRESSED | {"config_groups": {"a": {}}}, "not as compressed-tensors writes it"),
    (compressed(num_bits=2), r"\(compressed-tensors, 2 bits\)"),
    (compressed(num_bits="4"), r"\(compressed-tensors, '4' bits\)"),
    (compressed() | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse weights are not read"),
])  # fmt: skip
def test_a_quantization_that_is_not_read_is_named_with_a_way_out(tmp_path, written_config, sentence):
    folder = tiny_model(tmp_path, "llama")
    change_config(folder, quantization_config=written_config)
    with pytest.raises(ConfigError, match=sentence) as raised:
        read_config(folder)
    assert "ConfigError(" not in str(raised.value)


def test_the_first_name_of_compressed_tensors_configs_is_known(tmp_path):
    model, _ = quantized_model(tmp_path, Form("pack-quantized"))
    own = json.loads((model / "config.json").read_text())["quantization_config"]
    change_config(model, quantization_config=ABSENT, compression_config=own)
    assert str(read_config(model).quantization) == "compressed-tensors, 4 bits, in groups of 32"
