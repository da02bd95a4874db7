"""A model in Paddle's own layout computes bit for bit what it computes in Hugging Face's."""

import json
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.compared_models import assert_ranks_read_alike
from builders.hand_driven import HandDriven
from builders.paddle_model import paddle_model
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError
from penstock.worker.backends.native import backend as native
from penstock.worker.convert.convert import convert
from penstock.worker.models.config import read_config
from penstock.worker.models.load import load_model

DENSE: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "biases": {"use_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 2},
    "one key-value head, bfloat16": {"num_key_value_heads": 1, "dtype": "bfloat16"},
    # Every matrix of attention is square: only its name says that it is transposed.
    "square": {
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "hidden_size": 64,
        "dtype": "bfloat16",
        "use_bias": True,
    },
}
EXPERTS: dict[str, dict[str, Any]] = {
    "experts, tied, bfloat16": {"dtype": "bfloat16", "tie_word_embeddings": True},
    "experts, untied": {"tie_word_embeddings": False, "num_key_value_heads": 2},
    "experts in every second layer, none shared": {
        "num_hidden_layers": 4,
        "moe_layer_start_index": 0,
        "moe_layer_interval": 2,
        "moe_num_shared_experts": 0,
    },
    # Routers and experts are square.
    "experts, square": {"moe_num_experts": 48, "moe_intermediate_size": 48, "dtype": "bfloat16"},
}
PROMPTS = [[7, 8, 9], list(range(20, 60)), [11] * 17]


def pair_of(folder, name):
    """One model in both layouts."""
    family = "ernie4_5" if name in DENSE else "ernie4_5_moe"
    original = tiny_model(folder / "original", family, **(DENSE | EXPERTS)[name])
    return original, paddle_model(folder / "ERNIE-4.5-Paddle", original)


def answers(model):
    driven = HandDriven(model)
    logits = driven.greedy([driven.add(prompt) for prompt in PROMPTS], 16, budget=32)
    return driven.histories, torch.cat(logits)


def assert_alike(first, second):
    assert second.report.leftovers == []
    (texts, logits), (other_texts, other_logits) = answers(first), answers(second)
    assert texts == other_texts
    assert torch.equal(logits, other_logits)


@pytest.mark.parametrize(
    "backend, options",
    [
        ("native", {"dtype": "float32"}),
        ("native", {}),
        ("fast", {"dtype": "float32"}),
        pytest.param("fast", {}, marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", [*DENSE, *EXPERTS])
def test_it_answers_as_in_the_layout_of_hugging_face(tmp_path, name, backend, options):
    assert_alike(*(load_on(backend, folder, **options) for folder in pair_of(tmp_path, name)))


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("name", DENSE)
def test_it_is_quantized_while_loading_as_in_the_layout_of_hugging_face(tmp_path, name, kind):
    assert_alike(*(load_on("native", folder, quantization=kind) for folder in pair_of(tmp_path, name)))


def test_two_ranks_read_their_shares_and_answer_as_in_the_layout_of_hugging_face(tmp_path):
    folders = []
    for number, (name, options) in enumerate((DENSE | EXPERTS).items()):
        family = "ernie4_5" if name in DENSE else "ernie4_5_moe"
        original = tiny_model(tmp_path / f"{number}", family, **{"num_key_value_heads": 2, **options})
        folders += [original, paddle_model(tmp_path / f"{number}-Paddle", original)]
    assert_ranks_read_alike(tmp_path / "meet", folders)


@pytest.mark.parametrize("given", [{"shards": 3}, {"label": None}, {"shards": 2, "label": None}], ids=str)
def test_it_is_read_from_several_files_and_with_either_name_of_bfloat16(tmp_path, given):
    original = tiny_model(tmp_path / "original", "ernie4_5", dtype="bfloat16")
    assert_alike(load_model(original), load_model(paddle_model(tmp_path / "Paddle", original, **given)))


def test_a_head_that_paddleformers_wrote_is_not_transposed(tmp_path):
    original = tiny_model(tmp_path / "original", "ernie4_5", tie_word_embeddings=False)
    copy = paddle_model(tmp_path / "copy", original)
    path = copy / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].t().contiguous()
    save_file(tensors, path, metadata={"format": "np"})
    assert_alike(load_model(original), load_model(copy))


def test_projections_that_are_not_fused_are_transposed_all_the_same(tmp_path):
    original = tiny_model(tmp_path / "original", "ernie4_5", use_bias=True)
    copy = paddle_model(tmp_path / "copy", original)
    names = load_file(original / "model.safetensors")
    linear = [name for name in names if name.endswith("_proj.weight")]
    tensors = {"ernie." + name.removeprefix("model."): tensor for name, tensor in names.items()}
    for name in linear:
        tensors["ernie." + name.removeprefix("model.")] = names[name].t().contiguous()
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pd"})
    assert_alike(load_model(original), load_model(copy))


def test_a_head_that_guesses_further_tokens_and_the_trainers_files_stay_unread(tmp_path):
    original = tiny_model(tmp_path / "original", "ernie4_5")
    copy = paddle_model(tmp_path / "copy", original)
    tensors = load_file(copy / "model.safetensors")
    further = {
        "ernie.mtp_block.0.self_attn.qkv_proj.weight": torch.ones(48, 192),
        "ernie.mtp_linear_proj.0.weight": torch.ones(96, 48),
    }
    save_file(tensors | further, copy / "model.safetensors", metadata={"format": "np"})
    for name in ("optimizer-00001-of-00002.safetensors", "master_weights-00001-of-00002.safetensors"):
        save_file({"ernie.embed_tokens.weight": torch.zeros(307, 48)}, copy / name)
    model = load_model(copy)
    assert all("mtp" in name for name in model.report.leftovers)
    assert torch.equal(answers(model)[1], answers(load_model(original))[1])


def test_what_was_packed_before_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "_WORTH_KEEPING", 0)
    original = tiny_model(tmp_path / "original", "ernie4_5", dtype="bfloat16")
    copy = paddle_model(tmp_path / "ERNIE-4.5-0.3B-Paddle", original)
    first = load_on("native", copy)
    first.cache.write_in_background()
    first.cache.wait()
    second = load_on("native", copy)
    assert second.report.bytes_read < first.report.bytes_read / 10
    assert_alike(first, second)


@pytest.mark.parametrize("kind", [None, "int8", "int4"])
@pytest.mark.parametrize("cut", [{}, {"tensor_parallel_size": 2, "is_cut": True}], ids=str)
def test_converting_it_writes_what_converting_the_original_writes(tmp_path, kind, cut):
    sizes = dict(hidden_size=128, intermediate_size=128, num_attention_heads=8, num_key_value_heads=2)
    original = tiny_model(tmp_path / "original", "ernie4_5", dtype="bfloat16", config_style=4, **sizes)
    copy = paddle_model(tmp_path / "ERNIE-4.5-0.3B-Paddle", original, shards=2)
    made = []
    for source in (original, copy):
        made.append(tmp_path / f"made of {source.name}")
        convert(Conversion(str(source), str(source), str(made[-1]), kind, **cut), lambda said: None)
    for path in sorted(made[0].rglob("*.safetensors")):
        first, second = load_file(path), load_file(made[1] / path.relative_to(made[0]))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)
    assert read_config(made[0]) == read_config(made[1])


def test_the_config_is_read_as_paddles_engines_read_it(tmp_path):
    original = tiny_model(tmp_path / "original", "ernie4_5", dtype="bfloat16", config_style=4)
    copy = paddle_model(tmp_path / "copy", original)
    assert read_config(copy) == read_config(original)
    path = copy / "config.json"
    config = json.loads(path.read_text())
    for key in ("rope_theta", "num_key_value_heads", "head_dim", "tie_word_embeddings", "dtype"):
        del config[key]
    path.write_text(json.dumps(config | {"hidden_act": "swiglu"}))
    found = read_config(copy)
    assert (found.ropes.ropes[0].theta, found.heads[0].num_kv_heads, found.heads[0].head_dim) == (10_000.0, 6, 8)
    assert (found.tie_word_embeddings, found.dtype) == (False, "bfloat16")


@pytest.mark.parametrize(
    "quantization",
    [
        {"quantization": "mix_quant", "dense_quant_type": "wint8", "kv_cache_quant_type": "int8"},
        {"quantization": "wint8", "is_quantized": False},
    ],
    ids=str,
)
def test_a_quantization_that_is_only_asked_of_fastdeploy_is_left_to_the_user(tmp_path, quantization):
    original = tiny_model(tmp_path / "original", "ernie4_5")
    assert_alike(
        load_model(original), load_model(paddle_model(tmp_path / "copy", original, quantization_config=quantization))
    )


@pytest.mark.parametrize(
    "changes, sentence",
    [
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
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(tmp_path, changes, sentence):
    original = tiny_model(tmp_path / "original", "ernie4_5")
    with pytest.raises(ConfigError, match=sentence):
        load_model(paddle_model(tmp_path / "ERNIE-4.5-0.3B-Paddle", original, **changes))


def test_another_gate_of_its_experts_is_refused_by_name(tmp_path):
    original = tiny_model(tmp_path / "original", "ernie4_5_moe")
    with pytest.raises(ConfigError, match="moe_gate_act='sigmoid' asks for something else than 'softmax'"):
        load_model(paddle_model(tmp_path / "ERNIE-4.5-21B-Paddle", original, moe_gate_act="sigmoid"))


def test_integers_that_the_config_keeps_quiet_about_are_named(tmp_path):
    copy = paddle_model(tmp_path / "copy", tiny_model(tmp_path / "original", "ernie4_5"))
    tensors = load_file(copy / "model.safetensors")
    name = "ernie.layers.0.mlp.down_proj."
    tensors[name + "quant_weight"] = tensors.pop(name + "weight").to(torch.int8)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(ConfigError, match=f"{name}quant_weight is quantized for the kernels of one kind of card"):
        load_model(copy)


def test_another_familys_file_in_paddles_layout_is_refused(tmp_path):
    folder = tiny_model(tmp_path, "llama")
    path = folder / "model.safetensors"
    save_file(load_file(path), path, metadata={"format": "pd"})
    with pytest.raises(ConfigError, match=r"only ERNIE-4\.5's is read"):
        load_model(folder)
