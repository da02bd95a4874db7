"""Configs as models were published with them: read; and, made small, loaded and greedy-equal to transformers. Whatever
else a config.json says is read, or refused in a sentence that names the file: quickly, and by no other error.

Of published ones the shapes are all that was changed. Weights are random, in the names that transformers saves.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.cases import for_each
from builders.compared_models import check_answers, drawn
from builders.published_configs import COMPUTED, READ, SEEING, verdicts
from builders.tiny_configs import described
from builders.tiny_model import tiny_model
from safetensors.torch import save_file

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.layers.rope import inverse_frequencies
from penstock.worker.start.load import load_model

SMALL = {
    "vocab_size": 311, "hidden_size": 64, "intermediate_size": 80, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@for_each("name", COMPUTED)
def test_a_published_config_is_loaded_and_answers_as_transformers_does(tmp_path, name):
    reference = _written(tmp_path, SMALL | COMPUTED[name])
    model = load_model(tmp_path, dtype="float32")
    assert model.report.leftovers == []
    check_answers(model, reference, drawn(40), 8)
    reference.config.save_pretrained(tmp_path)  # as transformers 5 writes it
    assert described(replace(read_config(tmp_path), dtype=model.config.dtype)) == described(model.config)


@for_each("name", SEEING)
def test_the_text_part_of_a_model_that_sees_pictures_is_loaded(tmp_path, name):
    from transformers import AutoConfig, AutoModelForImageTextToText

    (tmp_path / "config.json").write_text(json.dumps(SEEING[name]))
    config = AutoConfig.from_pretrained(tmp_path)
    reference = _randomized(AutoModelForImageTextToText.from_config(config, dtype=torch.float32))
    reference.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SEEING[name]))
    check_answers(load_model(tmp_path, dtype="float32"), reference, drawn(40), 8)
    config.save_pretrained(tmp_path)
    check_answers(load_model(tmp_path, dtype="float32"), reference, drawn(40), 8)


MINICPM_2B = SMALL | {
    "architectures": ["MiniCPMForCausalLM"], "auto_map": {"AutoConfig": "configuration_minicpm.MiniCPMConfig"},
    "bos_token_id": 1, "dim_model_base": 24, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.1,
    "max_position_embeddings": 4096, "model_type": "minicpm", "rms_norm_eps": 1e-05, "rope_scaling": None,
    "mup_denominator": 32, "scale_depth": 1.4, "scale_emb": 12, "torch_dtype": "bfloat16",
    "transformers_version": "4.36.0",
}  # fmt: skip


def test_a_model_that_transformers_has_no_class_for_answers_as_its_twin_in_another_family(tmp_path):
    """MiniCPM's own code multiplies embeddings by scale_emb and updates by scale_depth / √layers, and divides what
    meets the head by hidden_size / dim_model_base. Granite's class can be told to do the same."""
    layers, hidden = MINICPM_2B["num_hidden_layers"], MINICPM_2B["hidden_size"]
    twin = MINICPM_2B | {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", "tie_word_embeddings": True,
        "embedding_multiplier": 12, "residual_multiplier": 1.4 / layers**0.5, "logits_scaling": hidden / 24,
        "attention_multiplier": (hidden // MINICPM_2B["num_attention_heads"]) ** -0.5,
    }  # fmt: skip
    twin.pop("auto_map")
    reference = _written(tmp_path, twin)
    (tmp_path / "config.json").write_text(json.dumps(MINICPM_2B))
    check_answers(load_model(tmp_path, dtype="float32"), reference, drawn(40), 8)


CONTEXTS = {"Phi-3-mini-4k-instruct": 4096, "phi-4": 16384, "SmolLM3-3B": 65536, "internlm2_5-7b-chat": 65536}
CONTEXTS |= {"internlm3-8b-instruct": 196608, "Ministral-8B-Instruct-2410": 32768, "Seed-OSS-36B-Instruct": 524288}
CONTEXTS |= {"Hunyuan-1.8B-Instruct": 32768, "AFM-4.5B": 81920, "Ministral-3-3B-Instruct-2512": 262144}
OF_REMOTE_CODE = ("internlm2_5-7b-chat",)


@for_each("name", READ)
def test_a_published_config_is_read_and_alike_as_transformers_5_writes_it(tmp_path, name):
    from transformers import AutoConfig

    (tmp_path / "config.json").write_text(json.dumps(READ[name]))
    original = read_config(tmp_path)
    assert original.max_position == CONTEXTS.get(name, 131072)
    if name not in OF_REMOTE_CODE:
        AutoConfig.from_pretrained(tmp_path).save_pretrained(tmp_path)
        assert described(read_config(tmp_path)) == described(original)


VERDICTS = verdicts()


@for_each("name", VERDICTS)
def test_a_published_config_runs_or_is_refused_as_it_should_be(tmp_path, name):
    config, expected = VERDICTS[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            read_config(tmp_path)
        return
    found = read_config(tmp_path)
    assert (found.max_position if found.cut is None else [found.max_position, found.cut.key]) == expected


def _written(folder: Path, config: dict[str, Any]) -> Any:
    """The folder of such a model with random weights; the model, as transformers has it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    (folder / "config.json").write_text(json.dumps(config))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    _randomized(model)
    tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return model


def _randomized(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            draws = torch.randn(weight.shape, generator=generator)
            weight.copy_(draws * weight.shape[-1] ** -0.5 if weight.dim() > 1 else weight + draws / 5)
    return model.eval()


# --- whatever else a config says --------------------------------------------------------------------------------------


ODD = [None, True, "x", "", [], ["a"], {}, {"a": 1}, 0, -1, 1.5, -1.0, math.nan, math.inf, 10**12, 10**30, "LONG"]
KEYS = [
    "architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "max_position_embeddings", "rope_theta",
    "rope_scaling", "rope_parameters", "tie_word_embeddings", "torch_dtype", "dtype", "hidden_act", "sliding_window",
    "use_sliding_window", "layer_types", "max_window_layers", "attention_bias", "quantization_config",
    "num_nextn_predict_layers", "partial_rotary_factor", "original_max_position_embeddings",
]  # fmt: skip


def outcome(folder, config):
    """The description that is read, or the refusal."""
    text = json.dumps(config).replace('"LONG"', "1" + "0" * 5000)  # Python writes no number of so many digits
    (folder / "config.json").write_text(text)
    try:
        return read_config(folder)
    except ConfigError as error:
        return str(error)


KEYS_OF_EXPERTS = [
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_k",
    "moe_intermediate_size", "shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts",
    "moe_num_shared_experts", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "moe_layer_start_index",
    "moe_layer_end_index", "moe_layer_interval", "first_k_dense_replace", "n_group", "topk_group", "topk_method",
    "routed_scaling_factor", "moe_norm_min", "swiglu_alpha", "swiglu_limit", "use_qk_norm", "qkv_bias", "clip_qkv",
    "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim", "rope_interleave",
]  # fmt: skip
MIXTURES = [
    "mixtral", "qwen2_moe", "qwen3_moe", "ernie4_5_moe", "olmoe", "glm4_moe", "deepseek_v2", "gpt_oss", "dots1",
    "minimax_m2", "hy_v3",
]  # fmt: skip


OTHERS = ("mistral", "qwen2", "qwen3", "ernie4_5")
# Most of what reads a key is every family's: each key in a Llama's config, and in that of one other family in turn.
KEYS_READ = {
    "llama": KEYS,
    **{family: KEYS[n::4] for n, family in enumerate(OTHERS)},
    **dict.fromkeys(MIXTURES, KEYS_OF_EXPERTS),
}


@for_each("family", KEYS_READ)
def test_any_value_is_taken_or_refused_with_its_key(tmp_path, family):
    config = json.loads((tiny_model(tmp_path, family) / "config.json").read_text())
    for key in (key for key in KEYS_READ[family] if key in config or family not in MIXTURES):
        for value in ODD:
            found = outcome(tmp_path, {**config, key: value})
            if isinstance(found, str):
                assert str(tmp_path) in found and len(found.encode()) < 1000
                # Without experts it's their other keys that are refused.
                assert family not in MIXTURES or key in found or "JSON" in found or not value
                continue
            assert found.num_heads <= 4096 and found.num_layers <= 4096 and found.rms_norm_eps > 0
            if found.experts is not None:
                of_it = found.experts
                assert of_it.top_k <= of_it.num_experts <= 8192 and 0 <= of_it.scale < math.inf
                assert type(of_it.shared_width) is int and of_it.shared_width >= 0


FIGURES = ["factor", "low_freq_factor", "rope_theta", "original_max_position_embeddings", "beta_fast", "mscale"]


@for_each("figure", FIGURES)
@for_each("kind", ["linear", "dynamic", "llama3", "yarn", 5, None, []])
def test_any_figure_of_rotary_positions_is_taken_or_refused(tmp_path, kind, figure):
    config = json.loads((tiny_model(tmp_path, "llama") / "config.json").read_text())
    figures = {"rope_type": kind, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "mscale_all_dim": 1.0}
    for value in [*ODD, 1e-9, 1e300]:
        found = outcome(tmp_path, {**config, "rope_scaling": {**figures, figure: value}})
        if isinstance(found, str):
            assert str(tmp_path) in found
        else:
            assert 0 < found.max_position <= 2**30
            rope = found.ropes.ropes[0]
            assert len(inverse_frequencies(rope, rope.stretches[-1])) == found.heads[0].head_dim // 2
