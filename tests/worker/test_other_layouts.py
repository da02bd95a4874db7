"""Checkpoints that lay tensors out otherwise compute bit for bit what the same numbers compute in the usual layout.

phi3 and internlm2 fuse projections, and are compared with a Llama; ERNIE-4.5 as Paddle's tools write it is transposed
as well, and is compared with what Hugging Face's form of it computes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import assert_alike, assert_same_files, converted
from builders.float8_forms import FLOAT8_FORMS
from builders.other_layouts import fused_model, paddle_model
from builders.quantized_model import Form, quantization_config, quantized_copy
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.start.load import load_model

# The family, and how it differs from the tiny model of its architecture.
FUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("phi3", {}),
    "groups of 3": ("internlm2", {}),
    "one key head, tied": ("internlm2", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "as many key heads": ("internlm2", {"num_key_value_heads": 6}),
    "biases": ("internlm2", {"attention_bias": True}),
}
DENSE: dict[str, tuple[str, dict[str, Any]]] = {
    "tied": ("ernie4_5", {}),
    "untied": ("ernie4_5", {"tie_word_embeddings": False}),
    "biases of Paddle": ("ernie4_5", {"use_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 2}),
    "one key-value head, bfloat16": ("ernie4_5", {"num_key_value_heads": 1, "dtype": "bfloat16"}),
    # Every matrix of attention is square: only its name says that it is transposed.
    "square": ("ernie4_5", dict(
        num_attention_heads=4, num_key_value_heads=4, hidden_size=64, dtype="bfloat16", use_bias=True,
    )),
}  # fmt: skip
EXPERTS: dict[str, tuple[str, dict[str, Any]]] = {
    "experts, tied, bfloat16": ("ernie4_5_moe", {"dtype": "bfloat16", "tie_word_embeddings": True}),
    "experts, untied": ("ernie4_5_moe", {"tie_word_embeddings": False, "num_key_value_heads": 2}),
    "experts in every second layer, none shared": ("ernie4_5_moe", dict(
        num_hidden_layers=4, moe_layer_start_index=0, moe_layer_interval=2, moe_num_shared_experts=0,
    )),
    # Routers and experts are square.
    "experts, square": ("ernie4_5_moe", {"moe_num_experts": 48, "moe_intermediate_size": 48, "dtype": "bfloat16"}),
}  # fmt: skip
LAYOUTS = FUSED | DENSE | EXPERTS
WIDE = dict(hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=32)


def pair_of(folder: Path, name: str, **options: Any) -> tuple[Path, Path]:
    """One model in the usual layout and in the other one."""
    family, own = LAYOUTS[name]
    if name in FUSED:
        original = tiny_model(folder / "original", "llama", **own | options)
        return original, fused_model(folder / family, original, family)
    original = tiny_model(folder / "original", family, **own | options)
    return original, paddle_model(folder / "ERNIE-4.5-Paddle", original)


# How a layout is read is apart from what its matrices become: each is read for one backend, some for both.
READ = [
    *((name, "native", {}) for name in LAYOUTS),
    *(
        (name, "fast", {"dtype": "float32"})
        for name in ("phi3", "biases", "biases of Paddle", "square", "experts, untied")
    ),
    *(
        (name, "native", {"quantization": kind})
        for name in ("phi3", "groups of 3", *DENSE)
        for kind in ("int8", "int4")
    ),
]


@for_each("name, backend, options", READ)
def test_it_answers_as_in_the_usual_layout(tmp_path, name, backend, options):
    assert_alike(*(load_on(backend, folder, **options) for folder in pair_of(tmp_path, name)))


@for_each("name", ["phi3", "groups of 3", "tied"])
@for_each("kind, cut", [(None, {}), ("int8", {}), *((kind, {"tensor_parallel_size": 2, "is_cut": True})
                                                   for kind in (None, "int8", "int4"))])  # fmt: skip
def test_converting_it_writes_what_converting_the_original_writes(tmp_path, name, kind, cut):
    sizes = dict(hidden_size=128, intermediate_size=128, num_attention_heads=8, num_key_value_heads=2)
    sources = pair_of(tmp_path, name, dtype="bfloat16", config_style=4, **sizes)
    made = [converted(source, tmp_path / f"made of {source.name}", kind, **cut) for source in sources]
    assert_same_files(made)
    if name == "tied":
        assert read_config(made[0]) == read_config(made[1])
    elif not cut:
        assert_alike(*(load_on("native", folder) for folder in made))


# --- fused projections ------------------------------------------------------------------------------------------------

FLOAT8 = {form.name: form for form in FLOAT8_FORMS}
FORMS: list[Any] = [
    Form("gptq", is_symmetric=False), Form("awq", is_symmetric=False), Form("pack-quantized", is_symmetric=False),
    Form("int-quantized", bits=8, group_size=0),
    *(FLOAT8[name] for name in ("compressed-channel", "compressed-group", "deepseek", "fbgemm", "modelopt-blocks")),
]  # fmt: skip


def quantized(folder: Path, target: Path, form: Any) -> tuple[Path, Path]:
    config = quantization_config(form) if isinstance(form, Form) else form.config
    return quantized_copy(folder, target, lambda module: form, config)


@for_each("form", FORMS, ids=str)
def test_fused_projections_are_read_in_integers_and_8_bit_floats_as_the_llamas(tmp_path, form):
    made = [quantized(each, tmp_path / f"quantized {each.name}", form)[0] for each in pair_of(tmp_path, "phi3", **WIDE)]
    assert_alike(*(load_on("native", folder) for folder in made))


def test_fused_projections_share_an_order_of_activations_or_a_scale_and_no_part_of_one(tmp_path):
    _, fused = pair_of(tmp_path, "phi3", **WIDE)
    folder, _ = quantized(fused, tmp_path / "ordered", Form("gptq", is_ordered=True))
    assert any(name.endswith("g_idx") for name in load_file(folder / "model.safetensors"))
    assert load_on("native", folder).report.leftovers == []
    for name in ("compressed-tensor", "static"):
        pair = quantized(fused, tmp_path / name, FLOAT8[name])
        assert_alike(*(load_on("fast", each, dtype="float32") for each in pair))
    folder, _ = quantized(fused, tmp_path / "in part", FLOAT8["deepseek-128"])
    with pytest.raises(ConfigError, match="has 2 rows for the outputs of several projections"):
        load_on("native", folder)


# --- Paddle's layout --------------------------------------------------------------------------------------------------


@for_each("given", [{"shards": 3}, {"label": None}, {"shards": 2, "label": None}])
def test_it_is_read_from_several_files_and_with_either_name_of_bfloat16(tmp_path, given):
    original = tiny_model(tmp_path / "original", "ernie4_5", dtype="bfloat16")
    assert_alike(load_model(original), load_model(paddle_model(tmp_path / "Paddle", original, **given)))


def test_a_head_of_paddleformers_is_not_transposed_and_projections_that_are_not_fused_are(tmp_path):
    original, copy = pair_of(tmp_path / "head", "untied")
    tensors = load_file(copy / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"].t().contiguous()
    save_file(tensors, copy / "model.safetensors", metadata={"format": "np"})
    assert_alike(load_model(original), load_model(copy))
    original, copy = pair_of(tmp_path / "projections", "tied", use_bias=True)
    tensors = {
        "ernie." + name.removeprefix("model."): tensor.t().contiguous() if name.endswith("_proj.weight") else tensor
        for name, tensor in load_file(original / "model.safetensors").items()
    }
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pd"})
    assert_alike(load_model(original), load_model(copy))


def test_a_head_that_guesses_further_tokens_and_the_trainers_files_stay_unread(tmp_path):
    original, copy = pair_of(tmp_path, "tied")
    further = {
        "ernie.mtp_block.0.self_attn.qkv_proj.weight": torch.ones(48, 192),
        "ernie.mtp_linear_proj.0.weight": torch.ones(96, 48),
    }
    tensors = load_file(copy / "model.safetensors")
    save_file(tensors | further, copy / "model.safetensors", metadata={"format": "np"})
    for name in ("optimizer-00001-of-00002.safetensors", "master_weights-00001-of-00002.safetensors"):
        save_file({"ernie.embed_tokens.weight": torch.zeros(307, 48)}, copy / name)
    model = load_model(copy)
    assert model.report.leftovers and all("mtp" in name for name in model.report.leftovers)
    assert_alike(model, load_model(original))


def test_the_config_is_read_as_paddles_engines_read_it(tmp_path):
    original, copy = pair_of(tmp_path, "tied", dtype="bfloat16", config_style=4)
    assert read_config(copy) == read_config(original)
    path = copy / "config.json"
    config = json.loads(path.read_text())
    for key in ("rope_theta", "num_key_value_heads", "head_dim", "tie_word_embeddings", "dtype"):
        del config[key]
    path.write_text(json.dumps(config | {"hidden_act": "swiglu"}))
    found = read_config(copy)
    assert (found.ropes.ropes[0].theta, found.heads[0].num_kv_heads, found.heads[0].head_dim) == (10_000.0, 6, 8)
    assert (found.tie_word_embeddings, found.dtype) == (False, "bfloat16")


@for_each("asked", [
    {"quantization": "mix_quant", "dense_quant_type": "wint8", "kv_cache_quant_type": "int8"},
    {"quantization": "wint8", "is_quantized": False},
])  # fmt: skip
def test_a_quantization_that_is_only_asked_of_fastdeploy_is_left_to_the_user(tmp_path, asked):
    original = tiny_model(tmp_path / "original", "ernie4_5")
    assert_alike(load_model(original), load_model(paddle_model(tmp_path / "copy", original, quantization_config=asked)))


@for_each("changes, sentence", [
    ({"compression_ratio": 4.0}, "compression_ratio is 4.0, and only 1"),
    ({"use_rmsnorm": False}, "use_rmsnorm is False, and only true"),
    ({"scale_qk_coeff": 2}, "scale_qk_coeff is 2"),
    ({"rms_norm_eps": None}, "lacks rms_norm_eps"),
    ({"is_quantized": True}, "quantized for FastDeploy .*bfloat16 form"),
    ({"quantization_config": {"quantization": "wint8"}}, r"\(wint8\), and its integers lie in an order"),
    (
        {"quantization_config": {"quantization": "mix_quant", "moe_quant_type": "w4a8", "is_quantized": True}},
        r"\(w4a8\), and its products expect inputs that are rotated",
    ),
    (
        {"is_quantized": True, "quantization_config": {"quantization": "wint2", "moe_quant_type": "w4w2"}},
        r"\(w4w2\), and its 2-bit codes",
    ),
    ({"moe_gate_act": "sigmoid"}, "moe_gate_act='sigmoid' asks for something else than 'softmax'"),
])  # fmt: skip
def test_what_cannot_be_computed_is_refused_by_name(tmp_path, changes, sentence):
    original = tiny_model(tmp_path / "original", "ernie4_5_moe" if "moe_gate_act" in changes else "ernie4_5")
    with pytest.raises(ConfigError, match=sentence):
        load_model(paddle_model(tmp_path / "ERNIE-4.5-Paddle", original, **changes))


def test_integers_that_the_config_keeps_quiet_about_are_named_and_another_family_is_refused(tmp_path):
    _, copy = pair_of(tmp_path, "tied")
    tensors = load_file(copy / "model.safetensors")
    name = "ernie.layers.0.mlp.down_proj."
    tensors[name + "quant_weight"] = tensors.pop(name + "weight").to(torch.int8)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(ConfigError, match=f"{name}quant_weight is quantized for the kernels of one kind of card"):
        load_model(copy)
    folder = tiny_model(tmp_path / "another family", "llama")
    path = folder / "model.safetensors"
    save_file(load_file(path), path, metadata={"format": "pd"})
    with pytest.raises(ConfigError, match=r"only ERNIE-4\.5's is read"):
        load_model(folder)
