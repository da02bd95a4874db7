"""Configs as models were published with them, keys and values, made small: loaded, and greedy-equal to transformers.

Shapes are all that was changed. Weights are random, in the names that transformers saves.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.cases import for_each
from builders.hand_driven import HandDriven
from builders.tiny_configs import described
from safetensors.torch import save_file

from penstock.protocol.errors import ConfigError
from penstock.worker.models.config import read_config
from penstock.worker.models.load import load_model

PROMPT, ANSWER = 40, 8
SMALL = {
    "vocab_size": 311, "hidden_size": 64, "intermediate_size": 80, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_BOOKKEEPING = dict(initializer_range=0.02, torch_dtype="bfloat16", transformers_version="4.42.4", use_cache=True)
_GEMMA = _BOOKKEEPING | {
    "attention_bias": False, "attention_dropout": 0.0, "cache_implementation": "hybrid", "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "rms_norm_eps": 1e-06,
}  # fmt: skip
_GEMMA_4 = {
    "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "attention_bias": False,
    "attention_dropout": 0.0, "attention_k_eq_v": False, "dtype": "bfloat16", "enable_moe_block": False,
    "expert_intermediate_size": None, "final_logit_softcapping": 30.0, "global_head_dim": 32, "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02, "max_position_embeddings": 131072,
    "moe_intermediate_size": None, "num_experts": None, "num_global_key_value_heads": None, "num_kv_shared_layers": 0,
    "pad_token_id": 0, "rms_norm_eps": 1e-06, "sliding_window": 9, "tie_word_embeddings": True, "top_k_experts": None,
    "use_bidirectional_attention": None, "use_cache": True, "use_double_wide_mlp": False,
    "vocab_size_per_layer_input": 311,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
}  # fmt: skip
_OLMO = _BOOKKEEPING | {"attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu", "rms_norm_eps": 1e-06}
_GRANITE = _BOOKKEEPING | {
    "attention_bias": False, "attention_dropout": 0.0, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
    "hidden_act": "silu", "logits_scaling": 8.0, "max_position_embeddings": 131072, "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000000.0, "tie_word_embeddings": True,
}  # fmt: skip

PUBLISHED: dict[str, dict[str, Any]] = {
    "google/gemma-2b": _BOOKKEEPING | {
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "attention_bias": False, "attention_dropout": 0.0,
        "head_dim": 16, "hidden_act": "gelu", "hidden_activation": None, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "num_key_value_heads": 1,
    },
    "google/gemma-2-2b": _GEMMA | {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_act": "gelu_pytorch_tanh",
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256,
        "rope_theta": 10000.0, "sliding_window": 9, "sliding_window_size": 9,
    },
    "google/gemma-3-1b-it": _GEMMA | {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "max_position_embeddings": 32768, "query_pre_attn_scalar": 256,
        "rope_local_base_freq": 10000, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 9,
        "sliding_window_pattern": 6, "num_hidden_layers": 7, "num_key_value_heads": 1,
    },
    "google/gemma-4-E2B-it, its decoder": _GEMMA_4 | {
        "hidden_size_per_layer_input": 12, "num_hidden_layers": 9, "num_key_value_heads": 1, "num_kv_shared_layers": 4,
        "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 3, "use_double_wide_mlp": True,
    },
    "google/gemma-4-E4B-it, its decoder": _GEMMA_4 | {
        "hidden_size_per_layer_input": 12, "num_hidden_layers": 6, "num_kv_shared_layers": 3,
        "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2,
    },
    "google/gemma-4-31B-it, its decoder": _GEMMA_4 | {
        "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "num_attention_heads": 8, "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "num_global_key_value_heads": 2,
        "num_key_value_heads": 4, "use_bidirectional_attention": "vision",
    },
    "google/gemma-4-26B-A4B-it, its decoder": _GEMMA_4 | {
        "attention_k_eq_v": True, "enable_moe_block": True, "hidden_size_per_layer_input": 0,
        "moe_intermediate_size": 24, "num_attention_heads": 8, "num_experts": 8, "num_global_key_value_heads": 2,
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "num_key_value_heads": 4, "top_k_experts": 3,
        "use_bidirectional_attention": "vision",
    },
    "allenai/OLMo-2-1124-7B": _OLMO | {
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "max_position_embeddings": 4096,
        "num_key_value_heads": 4, "rope_scaling": None, "rope_theta": 500000, "tie_word_embeddings": False,
    },
    "allenai/Olmo-3-7B-Instruct": _OLMO | {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "max_position_embeddings": 65536,
        "num_key_value_heads": 4, "rope_theta": 500000, "sliding_window": 9, "tie_word_embeddings": False,
        "rope_scaling": {
            "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
            "original_max_position_embeddings": 8192, "rope_type": "yarn",
        },
        "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    },
    "THUDM/GLM-4-9B-0414": _BOOKKEEPING | {
        "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "attention_bias": False, "attention_dropout": 0.0,
        "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 32768, "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": [2, 3, 4],
    },
    "THUDM/glm-4-9b-chat-hf": _BOOKKEEPING | {
        "architectures": ["GlmForCausalLM"], "model_type": "glm", "attention_bias": True, "attention_dropout": 0.0,
        "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 131072, "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1.5625e-07, "rope_theta": 10000.0, "tie_word_embeddings": False, "eos_token_id": [2, 3, 4],
    },
    "ibm-granite/granite-3.3-2b-instruct": _GRANITE | {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", "mlp_bias": False,
    },
    "ibm-granite/granite-4.0-1b": _GRANITE | {
        "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "init_method": "mup",
        "attention_multiplier": 0.0078125, "layer_types": ["attention"] * 4, "mamba_chunk_size": 256,
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 32, "mamba_d_state": 256, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 4, "mamba_proj_bias": False, "normalization_function": "rmsnorm",
        "num_experts_per_tok": 0, "num_local_experts": 0, "output_router_logits": False,
        "position_embedding_type": "rope", "router_aux_loss_coef": 0.01, "shared_intermediate_size": 80,
    },
    "CohereForAI/c4ai-command-r-v01": _BOOKKEEPING | {
        "architectures": ["CohereForCausalLM"], "model_type": "cohere", "attention_bias": False,
        "attention_dropout": 0.0, "hidden_act": "silu", "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
        "max_position_embeddings": 8192, "model_max_length": 131072, "num_key_value_heads": 4, "pad_token_id": 0,
        "rope_theta": 8000000.0, "use_qk_norm": False,
    },
    "CohereForAI/c4ai-command-r-plus": _BOOKKEEPING | {
        "architectures": ["CohereForCausalLM"], "model_type": "cohere", "attention_bias": False,
        "attention_dropout": 0.0, "hidden_act": "silu", "layer_norm_eps": 1e-05, "logit_scale": 0.8333333333333334,
        "max_position_embeddings": 8192, "model_max_length": 131072, "pad_token_id": 0, "rope_theta": 75000000.0,
        "tie_word_embeddings": True, "use_qk_norm": True, "position_embedding_type": "rope_gptj",
        "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
    },
    "CohereForAI/c4ai-command-r7b-12-2024": _BOOKKEEPING | {
        "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "attention_bias": False,
        "attention_dropout": 0.0, "cache_implementation": "hybrid", "head_dim": 16, "hidden_act": "silu",
        "layer_norm_eps": 1e-05, "layer_switch": 4, "logit_scale": 0.25, "max_position_embeddings": 8192,
        "order_of_interleaved_layers": "local_attn_first", "pad_token_id": 0, "position_embedding_type": "rope_gptj",
        "rope_scaling": None, "rope_theta": 50000, "rotary_pct": 1.0, "sliding_window": 9, "sliding_window_pattern": 4,
        "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
        "use_parallel_embedding": True, "_sliding_window_pattern": 4,
    },
    "stabilityai/stablelm-2-1_6b": _BOOKKEEPING | {
        "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "hidden_act": "silu",
        "layer_norm_eps": 1e-05, "max_position_embeddings": 4096, "num_key_value_heads": 4,
        "partial_rotary_factor": 0.25, "rope_theta": 10000, "tie_word_embeddings": False, "use_qkv_bias": True,
        "norm_eps": 1e-05, "rope_pct": 0.25, "rotary_scaling_factor": 1.0,
        "hidden_size": 128,
    },
    "stabilityai/stablelm-2-12b": _BOOKKEEPING | {
        "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "attention_dropout": 0.0,
        "hidden_act": "silu", "hidden_dropout": 0.0, "layer_norm_eps": 1e-05, "max_position_embeddings": 4096,
        "partial_rotary_factor": 0.25, "qk_layernorm": True, "rope_scaling": None, "rope_theta": 10000,
        "tie_word_embeddings": False, "use_parallel_residual": True, "use_qkv_bias": False, "hidden_size": 128,
    },
    "nvidia/Minitron-4B-Base": _BOOKKEEPING | {
        "architectures": ["NemotronForCausalLM"], "model_type": "nemotron", "attention_bias": False,
        "attention_dropout": 0.0, "head_dim": 16, "hidden_act": "relu2", "initializer_range": 0.0134,
        "kv_channels": 16, "max_position_embeddings": 4096, "mlp_bias": False, "norm_eps": 1e-05,
        "partial_rotary_factor": 0.5, "rope_percent": 0.5, "rope_theta": 10000, "tie_word_embeddings": False,
    },
    "microsoft/phi-2": _BOOKKEEPING | {
        "architectures": ["PhiForCausalLM"], "model_type": "phi", "attention_dropout": 0.0, "embd_pdrop": 0.0,
        "hidden_act": "gelu_new", "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
        "num_key_value_heads": 4, "partial_rotary_factor": 0.4, "qk_layernorm": False, "resid_pdrop": 0.1,
        "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_size": 320,
    },
    "bigcode/starcoder2-3b": _BOOKKEEPING | {
        "architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "activation_function": "gelu",
        "attention_dropout": 0.1, "attention_softmax_in_fp32": True, "embedding_dropout": 0.1,
        "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 16384, "mlp_type": "default",
        "norm_epsilon": 1e-05, "norm_type": "layer_norm", "residual_dropout": 0.1, "rope_theta": 999999.4420358813,
        "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True, "sliding_window": 9, "use_bias": True,
    },
}  # fmt: skip


@for_each("name", PUBLISHED)
def test_a_published_config_is_loaded_and_answers_as_transformers_does(tmp_path, name):
    reference = _written(tmp_path, SMALL | PUBLISHED[name])
    model = load_model(tmp_path, dtype="float32")
    assert model.report.leftovers == []
    _agree(model, reference)
    reference.config.save_pretrained(tmp_path)  # as transformers 5 writes it
    assert described(replace(read_config(tmp_path), dtype=model.config.dtype)) == described(model.config)


def test_a_granite_with_mambas_layers_is_refused_with_those_that_have_none(tmp_path):
    config = SMALL | PUBLISHED["ibm-granite/granite-4.0-1b"] | {"layer_types": ["mamba", "mamba", "attention", "mamba"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="layer_types .* Mamba's layers are not supported: use a Granite 4 without"):
        read_config(tmp_path)


GEMMA_3_4B = {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "boi_token_index": 301,
    "eoi_token_index": 302, "eos_token_id": [1, 106], "image_token_index": 303, "initializer_range": 0.02,
    "mm_tokens_per_image": 4, "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "text_config": {
        "hidden_size": 64, "intermediate_size": 80, "model_type": "gemma3_text", "num_hidden_layers": 7,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 9, "vocab_size": 311, "head_dim": 16,
        "pad_token_id": 0,
    },
    "vision_config": {
        "hidden_size": 32, "image_size": 28, "intermediate_size": 48, "model_type": "siglip_vision_model",
        "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 14, "vision_use_head": False,
    },
}  # fmt: skip
GEMMA_4_E2B = {
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "audio_config": None,
    "audio_token_id": 400, "boa_token_id": 401, "boi_token_id": 402, "eoa_token_id": 403, "eoa_token_index": 403,
    "eoi_token_id": 404, "eos_token_id": [1, 106], "image_token_id": 405, "initializer_range": 0.02,
    "tie_word_embeddings": True, "video_token_id": 406, "vision_soft_tokens_per_image": 4, "dtype": "bfloat16",
    "text_config": SMALL | PUBLISHED["google/gemma-4-E2B-it, its decoder"] | {"pad_token_id": 0},
    "vision_config": {
        "hidden_size": 32, "intermediate_size": 48, "model_type": "gemma4_vision", "num_attention_heads": 2,
        "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 14,
        "position_embedding_size": 16,
    },
}  # fmt: skip
del GEMMA_4_E2B["text_config"]["architectures"]
SEEING = {"google/gemma-3-4b-it": GEMMA_3_4B, "google/gemma-4-E2B-it": GEMMA_4_E2B}


@for_each("name", SEEING)
def test_the_text_part_of_a_model_that_sees_pictures_is_loaded(tmp_path, name):
    from transformers import AutoConfig, AutoModelForImageTextToText

    (tmp_path / "config.json").write_text(json.dumps(SEEING[name]))
    config = AutoConfig.from_pretrained(tmp_path)
    reference = _randomized(AutoModelForImageTextToText.from_config(config, dtype=torch.float32))
    reference.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SEEING[name]))
    _agree(load_model(tmp_path, dtype="float32"), reference)
    config.save_pretrained(tmp_path)
    _agree(load_model(tmp_path, dtype="float32"), reference)


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
    _agree(load_model(tmp_path, dtype="float32"), reference)


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


def _agree(model: Any, reference: Any) -> None:
    """The answer is that of transformers."""
    driven = HandDriven(model)
    row = driven.add(torch.randint(5, 300, (PROMPT,), generator=torch.Generator().manual_seed(7)).tolist())
    [logits] = driven.greedy([row], ANSWER, budget=16)
    with torch.inference_mode():
        expected = reference(torch.tensor([driven.histories[row]])).logits[0, PROMPT - 1 : -1].float()
    assert expected.argmax(-1).tolist() == driven.histories[row][PROMPT:]
    assert (expected.log_softmax(-1) - logits.log_softmax(-1)).abs().max() < 1e-3
