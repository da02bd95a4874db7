"""Checkpoints in 8-bit floats: each means what its tool wrote, whole or cut for a rank, and answers as its twin."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from builders.cases import for_each
from builders.compared_models import logits_of, opened
from builders.float8_forms import FLOAT8_FORMS, Float8Form
from builders.native_variants import needs_variant
from builders.quantized_model import MATRICES, float8_model
from builders.quantized_parts import equal, floats, pack
from safetensors.torch import load_file, save_file

from penstock.kernels import WeightFormat
from penstock.kernels.cpu.library import LibraryError
from penstock.kernels.stored.float8 import Float8Part
from penstock.kernels.torch.packed.gpu_weights import pack as gpu_pack
from penstock.kernels.torch.packed.gpu_weights import unpacked as gpu_unpacked
from penstock.protocol.errors import ConfigError
from penstock.worker.backends import select
from penstock.worker.description.config import read_config
from penstock.worker.start.load import load_model

BY_NAME = {form.name: form for form in FLOAT8_FORMS}
DOWN, DOWN_SHAPE = "model.layers.1.mlp.down_proj.weight", (64, 112)

each_form = for_each("form", FLOAT8_FORMS, ids=str)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Callable[[Float8Form], tuple[Path, Path]]:
    """The checkpoint in a form, and its twin in floats; each is made once, so tests leave them as they are."""
    return cache(lambda form: float8_model(tmp_path_factory.mktemp(str(form)), form))


def no_library() -> None:
    raise LibraryError("switched off")


@each_form
def test_a_matrix_means_what_its_tool_wrote_whole_and_cut_even_within_a_block(written, form):
    model, twin = written(form)
    checkpoint, widened = opened(model), load_file(twin / "model.safetensors")
    for module, shape in MATRICES.items():
        name = f"model.layers.1.{module}.weight"
        part = checkpoint.matrix(name, shape)
        assert isinstance(part, Float8Part)
        assert torch.equal(floats(part), widened[name]), module
    for share in ((0, 0, 37), (0, 37, 64), (1, 0, 56), (1, 56, 112), (1, 50, 51)):
        dim, first, last = share
        part = checkpoint.matrix(DOWN, DOWN_SHAPE, share)
        assert torch.equal(floats(part), widened[DOWN].narrow(dim, first, last - first)), share
        assert part.nbytes < 2 * part.values.size + 512, share


def test_blocks_of_128_end_where_the_matrix_does(tmp_path):
    form = BY_NAME["deepseek-128"]
    model, twin = float8_model(tmp_path, form, hidden_size=160, intermediate_size=296)
    widened = load_file(twin / "model.safetensors")[DOWN]
    assert opened(model).stored(DOWN + "_scale_inv").shape == (2, 3)
    for share in (None, (0, 100, 160), (1, 148, 296)):
        expected = widened if share is None else widened.narrow(share[0], share[1], share[2] - share[1])
        assert torch.equal(floats(opened(model).matrix(DOWN, (160, 296), share)), expected), share


@each_form
def test_with_torch_alone_it_gives_the_logits_of_its_twin(written, form, monkeypatch):
    monkeypatch.setattr(select, "load_library", no_library)
    model, twin = (load_model(folder) for folder in written(form))
    assert model.report.leftovers == []
    assert torch.equal(logits_of(model), logits_of(twin))


QKV_IN_FLOATS = dict.fromkeys(("*.q_proj", "*.k_proj", "*.v_proj"))
# The option, and what gives the twin the same: int8 where nothing is said, and a head (tied here) in floats.
QUANTIZATIONS: list[tuple[object, object]] = [
    (None, {"*.layers.*": "int8"}),
    ("int8", "int8"),
    ("int4", "int4"),
    ({"*": None}, {"*.layers.*": "int8", "*": None}),
    ({"*.mlp.*": "int4"} | QKV_IN_FLOATS, {"*.layers.*": "int8", "*.mlp.*": "int4"} | QKV_IN_FLOATS),
]
# A form is read before a kind is made of it: every form with one kind, and one form by blocks with all of them.
KINDS_OF_FORMS = [
    *(("auto", form, *QUANTIZATIONS[number % len(QUANTIZATIONS)]) for number, form in enumerate(FLOAT8_FORMS)),
    *(("auto", BY_NAME["deepseek"], *each) for each in QUANTIZATIONS[1:]),
    ("bfloat16", BY_NAME["deepseek"], {"*": None}, None),
]


@needs_variant
@for_each("dtype, form, quantization, of_twin", KINDS_OF_FORMS)
def test_the_kernels_get_what_they_get_of_the_twin_in_float32(written, dtype, form, quantization, of_twin):
    """From the float32 product of value and scale, rounded once."""
    options = [json.dumps(each) if isinstance(each, dict) else each for each in (quantization, of_twin)]
    models = zip(written(form), options, strict=True)
    model, twin = (load_model(folder, dtype=dtype, quantization=option) for folder, option in models)
    assert model.report.leftovers == []
    assert torch.equal(logits_of(model), logits_of(twin))


@for_each("kind", ["int8", "int4", "bf16"])
def test_a_gpus_weights_are_those_of_the_floats(written, kind):
    model, twin = written(BY_NAME["deepseek"])
    part, widened = opened(model).matrix(DOWN, DOWN_SHAPE), load_file(twin / "model.safetensors")[DOWN]
    format = WeightFormat(kind, 32 if kind == "int4" else 0)
    ours, theirs = (gpu_pack([each], format, torch.device("cpu")) for each in (part, widened))
    assert torch.equal(ours.values, theirs.values)
    if kind != "bf16":
        assert torch.equal(gpu_unpacked(ours).dequantized(), gpu_unpacked(theirs).dequantized())
    assert gpu_pack([part], WeightFormat("bf16", float8="int8"), torch.device("cpu")).kind == "int8"


@needs_variant
@each_form
@for_each("kind", ["int8", "int4", "bf16"])
def test_some_rows_turned_over_are_packed_as_their_floats_are(written, form, kind):
    """As weights of single heads are, which begin within a block."""
    model, twin = written(form)
    part = opened(model).matrix(DOWN, DOWN_SHAPE, (1, 7, 107)).rows(2, 63).rows(3, 59)
    widened = load_file(twin / "model.safetensors")[DOWN][5:61, 7:107].contiguous()
    for ours, theirs in ((part, widened), (part.transposed(), widened.T.contiguous())):
        assert torch.equal(floats(ours), theirs)
        assert equal(pack([ours], kind, 32).data, pack([theirs], kind, 32).data)


@for_each("name, changes, sentence", [
    ("deepseek", {"weight_scale_inv": None}, r"down_proj is stored as 8-bit floats without a"),
    ("deepseek", {"weight_scale_inv": torch.ones(3, 3)}, r"3 scales along 64 numbers, .* says blocks of 32\."),
    ("compressed-channel", {"weight_scale": torch.ones(63, 1)}, "63 scales along 64 numbers, .* no blocks"),
    ("static", {"weight": torch.ones(64, 96).to(torch.float8_e4m3fn)}, r"shape \(64, 96\), .* asks for 112 inputs"),
    ("static", {"weight": torch.ones(32, 112).to(torch.float8_e4m3fn)}, "32 outputs, and .* asks for 64"),
])  # fmt: skip
def test_what_does_not_fit_together_is_named(tmp_path, name, changes, sentence):
    model, _ = float8_model(tmp_path, BY_NAME[name])
    tensors, module = load_file(model / "model.safetensors"), DOWN.removesuffix("weight")
    for part, tensor in changes.items():
        del tensors[module + part]
        tensors |= {} if tensor is None else {module + part: tensor}
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match=sentence):
        opened(model).matrix(DOWN, DOWN_SHAPE)


@for_each("changes, sentence", [
    ({"quant_method": "fp8", "weight_block_size": [128]}, "not as fp8 writes it"),
    ({"quant_method": "fp8", "weight_block_size": [128, "128"]}, "blocks must have two whole numbers"),
    ({"quant_method": "fp8", "expert_dtype": "fp4"}, r"\(fp8, with experts in fp4\)"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, r"\(modelopt, NVFP4\)"),
    ({"quant_method": "modelopt"}, "it has no 'quant_algo'"),
])  # fmt: skip
def test_a_form_that_is_not_read_is_named(tmp_path, changes, sentence):
    model, _ = float8_model(tmp_path, Float8Form("other", (0, 0), changes))
    with pytest.raises(ConfigError, match=sentence):
        read_config(model)
