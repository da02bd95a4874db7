"""Every family against transformers in float32: greedy tokens equal, log-probabilities within 1e-3.

The rows run together, of mixed lengths, with their prompts in chunks; transformers sees each finished text alone, in
one pass. Its choice at every position of the answer is then what greedy decoding with it would have chosen.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from builders.backends import BACKENDS, load_on
from builders.hand_driven import HandDriven
from builders.tiny_gemma4 import MIXTURE, MIXTURE_THAT_READS
from builders.tiny_hybrids import HYBRIDS, ODD_HYBRIDS
from builders.tiny_model import tiny_model

LINEAR = {"rope_type": "linear", "factor": 2.5}
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
YARN_WHOLE = {**YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
YARN_TUNED = {**YARN, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.3}
YARN_SCALED = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 2.4, 3.0, 4.0],
    "long_factor": [1.2, 1.5, 2.0, 4.0, 8.0, 11.0, 16.0, 20.0],
}  # fmt: skip
OLD_SPELLING: dict[str, Any] = {"config_style": 4}

QUICK: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama 3, tied, 3 groups of 5": (
        "llama",
        {"rope": LLAMA3, "num_attention_heads": 15, "num_key_value_heads": 3, "hidden_size": 60, "head_dim": 4,
         "tie_word_embeddings": True, **OLD_SPELLING},
    ),
    "llama with every bias, linear": ("llama", {"attention_bias": True, "mlp_bias": True, "rope": LINEAR}),
    "mistral": ("mistral", OLD_SPELLING),
    "mistral, window 9": ("mistral", {"sliding_window": 9}),
    "mistral, window 40, yarn": ("mistral", {"sliding_window": 40, "rope": YARN}),
    "qwen2": ("qwen2", {}),
    "qwen2, window 7 from layer 1 on, yarn": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1, "rope": YARN_TUNED},
    ),
    "qwen2 bfloat16, dynamic": (
        "qwen2", {"dtype": "bfloat16", "rope": DYNAMIC, "num_key_value_heads": 1, **OLD_SPELLING}
    ),
    "qwen3": ("qwen3", {}),
    "qwen3 untied, yarn, 3 shards": (
        "qwen3", {"rope": YARN, "shards": 3, "tie_word_embeddings": False, **OLD_SPELLING}
    ),
    "qwen3 float16, biased": ("qwen3", {"dtype": "float16", "attention_bias": True, "num_key_value_heads": 4}),
    "ernie": ("ernie4_5", {}),
    "ernie with biases, untied": ("ernie4_5", {"use_bias": True, "tie_word_embeddings": False, **OLD_SPELLING}),
    "ernie, linear": ("ernie4_5", {"rope": LINEAR, "head_dim": 14}),
    "smollm3": ("smollm3", OLD_SPELLING),
    "smollm3, every second layer rotates, biased, yarn": (
        "smollm3",
        {"no_rope_layers": None, "no_rope_layer_interval": 2, "attention_bias": True, "mlp_bias": True, "rope": YARN,
         "tie_word_embeddings": False, "num_key_value_heads": 6, "head_dim": 32},
    ),
    "smollm3, no layer rotates": ("smollm3", {"no_rope_layers": [0] * 4}),
    "smollm3, windows where nothing rotates": (
        "smollm3", {"use_sliding_window": True, "sliding_window": 9, "no_rope_layers": [0, 1, 1, 0]}
    ),
    "phi3": ("phi3", OLD_SPELLING),
    "phi3, short factors, window 30": (
        "phi3",
        {"rope": LONGROPE, "original_max_position_embeddings": 200, "sliding_window": 30, "num_key_value_heads": 1},
    ),
    "phi3, three quarters rotate, tied, one shard of two": (
        "phi3",
        {"rope": {**LONGROPE, **{name: [1.0, 1.5, 2.0, 3.0, 4.5, 9.0] for name in ("short_factor", "long_factor")}},
         "partial_rotary_factor": 0.75, "tie_word_embeddings": True, "num_attention_heads": 4, "shards": 2,
         "original_max_position_embeddings": 256, **OLD_SPELLING},
    ),
    "olmo2": ("olmo2", OLD_SPELLING),
    "olmo2, biased, groups, tied, yarn": (
        "olmo2",
        {"attention_bias": True, "num_key_value_heads": 1, "tie_word_embeddings": True, "rope": YARN,
         "hidden_size": 160, "rms_norm_eps": 1e-5},
    ),
    "granite": ("granite", OLD_SPELLING),
    "granite, biases everywhere, untied, linear": (
        "granite",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False, "rope": LINEAR,
         "embedding_multiplier": 0.7, "logits_scaling": 0.25, "residual_multiplier": 1.3, "attention_multiplier": 0.3},
    ),
    "internlm3": ("internlm3", OLD_SPELLING),
    "internlm3, biases everywhere, dynamic": ("internlm3", {"attention_bias": True, "mlp_bias": True, "rope": DYNAMIC}),
    "ministral": ("ministral", OLD_SPELLING),
    "ministral, window 9 everywhere": (
        "ministral", {"sliding_window": 9, "layer_types": ["sliding_attention"] * 2, "num_key_value_heads": 6}
    ),
    "ministral 3": ("ministral3", {"rope": {**YARN_SCALED, "llama_4_scaling_beta": 0.1}}),
    "ministral 3, steep, tied, window 60": (
        "ministral3",
        {"rope": {**YARN, "original_max_position_embeddings": 9, "llama_4_scaling_beta": 0.8, "type": "yarn",
                  "max_position_embeddings": 1024},
         "tie_word_embeddings": True, "sliding_window": 60, "num_key_value_heads": 4},
    ),
    "exaone 4": ("exaone4", {"rope": LLAMA3, **OLD_SPELLING}),
    "exaone 4, no windows, all rotate": (
        "exaone4",
        {"sliding_window": None, "sliding_window_pattern": None, "layer_types": ["full_attention"] * 4,
         "num_key_value_heads": 6},
    ),
    "exaone 4, windows by pattern": ("exaone4", {"sliding_window_pattern": 2, "layer_types": None, "rope": YARN}),
    "hunyuan dense, alpha": (
        "hunyuan_v1_dense", {"rope": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "mscale": 1.0}}
    ),
    "hunyuan dense, biased, tied, yarn": (
        "hunyuan_v1_dense",
        {"attention_bias": True, "tie_word_embeddings": True, "rope": YARN, "num_key_value_heads": 3, **OLD_SPELLING},
    ),
    "arcee": ("arcee", OLD_SPELLING),
    "arcee, biased, yarn, tied": (
        "arcee", {"attention_bias": True, "mlp_bias": True, "rope": YARN, "tie_word_embeddings": True}
    ),
    "seed-oss": ("seed_oss", OLD_SPELLING),
    "seed-oss, every bias, yarn": (
        "seed_oss", {"attention_out_bias": True, "mlp_bias": True, "rope": YARN, "num_key_value_heads": 5}
    ),
    "olmo3": ("olmo3", OLD_SPELLING),
    "olmo3, groups, biased, yarn in full layers": (
        "olmo3",
        {"num_key_value_heads": 1, "attention_bias": True, "rope": YARN, "hidden_size": 160,
         "layer_types": ["full_attention", "sliding_attention"] * 2},
    ),
    "glm": ("glm", OLD_SPELLING),
    "glm4": ("glm4", OLD_SPELLING),
    "glm4, biased, all rotates, tied, linear": (
        "glm4",
        {"attention_bias": True, "partial_rotary_factor": 1.0, "tie_word_embeddings": True, "rope": LINEAR,
         "num_key_value_heads": 6},
    ),
    "gemma": ("gemma", OLD_SPELLING),
    "gemma, gelu by its usual name, biased, untied": (
        "gemma",
        {"hidden_act": "gelu_pytorch_tanh", "attention_bias": True, "tie_word_embeddings": False, "hidden_size": 70},
    ),
    "gemma2": ("gemma2", OLD_SPELLING),
    "gemma2, no caps, exact gelu, windows last, biased": (
        "gemma2",
        {"attn_logit_softcapping": None, "final_logit_softcapping": None, "hidden_activation": "gelu",
         "layer_types": ["full_attention", "sliding_attention"], "attention_bias": True, "num_key_value_heads": 4},
    ),
    "gemma2 bfloat16": ("gemma2", {"dtype": "bfloat16", "num_hidden_layers": 3, "attn_logit_softcapping": 50.0}),
    "vaultgemma": ("vaultgemma", OLD_SPELLING),
    "gemma3": ("gemma3_text", OLD_SPELLING),
    "gemma3, stretched, every third layer full, capped logits": (
        "gemma3_text",
        {"rope": LINEAR, "num_key_value_heads": 2, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 100,
         "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2, "num_hidden_layers": 6},
    ),
    "gemma4": ("gemma4_text", {}),
    "gemma4, keys serve as values, biased, untied, no embeddings of layers": (
        "gemma4_text",
        {"attention_k_eq_v": True, "num_key_value_heads": 4, "num_global_key_value_heads": 2, "attention_bias": True,
         "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False,
         "tie_word_embeddings": False, "use_bidirectional_attention": "vision", "final_logit_softcapping": None},
    ),
    "gemma4 bfloat16, keys serve as values and are read, heads by number, all of them rotate": (
        "gemma4_text",
        {"dtype": "bfloat16", "attention_k_eq_v": True, "num_key_value_heads": 2, "use_double_wide_mlp": False,
         "per_layer_config": {str(layer): {"head_dim": 32, "num_key_value_heads": 4} for layer in (2, 6)},
         "rope": {"rope_type": "proportional", "factor": 2.0}, "hidden_activation": "gelu", "hidden_size": 64},
    ),
    "gemma4, biased, two layers read, one layer without a window, yarn": (
        "gemma4_text",
        {"attention_bias": True, "num_kv_shared_layers": 2, "num_hidden_layers": 5,
         "layer_types": ["full_attention"] + ["sliding_attention"] * 4, "global_head_dim": 16,
         "rope": YARN, "num_attention_heads": 3},
    ),
    "gemma4, mixture": ("gemma4_text", MIXTURE),
    "gemma4, mixture, layers read, embeddings of layers, every expert, biased": ("gemma4_text", MIXTURE_THAT_READS),
    "granite hybrid": ("granitemoehybrid", OLD_SPELLING),
    "granite hybrid, does not rotate, biased, old names of layers": (
        "granitemoehybrid",
        {"position_embedding_type": None, "attention_bias": True, "layer_types": ["attention"] * 3,
         "num_hidden_layers": 3},
    ),
    "cohere": ("cohere", OLD_SPELLING),
    "cohere, norms of heads, biased, untied, linear": (
        "cohere",
        {"use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False, "rope": LINEAR, "logit_scale": 2.5},
    ),
    "cohere2": ("cohere2", OLD_SPELLING),
    "cohere2, biased, windows first, yarn": (
        "cohere2",
        {"attention_bias": True, "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2, "rope": YARN},
    ),
    "stablelm": ("stablelm", OLD_SPELLING),
    "stablelm, norms of heads, parallel, half rotates": (
        "stablelm",
        {"qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": False, "partial_rotary_factor": 0.5,
         "hidden_size": 64, "tie_word_embeddings": True},
    ),
    "stablelm, norms of heads": ("stablelm", {"qk_layernorm": True, "num_key_value_heads": 4}),
    "phi": ("phi", OLD_SPELLING),
    "phi, exact gelu, all rotates, tied": (
        "phi", {"hidden_act": "gelu", "partial_rotary_factor": 1.0, "tie_word_embeddings": True, "rope": LINEAR}
    ),
    "nemotron": ("nemotron", OLD_SPELLING),
    "nemotron, biases everywhere, all rotates, tied": (
        "nemotron",
        {"attention_bias": True, "mlp_bias": True, "partial_rotary_factor": 1.0, "tie_word_embeddings": True,
         "hidden_act": "silu"},
    ),
    "jais2": ("jais2", OLD_SPELLING),
    "starcoder2": ("starcoder2", OLD_SPELLING),
    "starcoder2, window 9, unbiased, untied, relu": (
        "starcoder2", {"sliding_window": 9, "use_bias": False, "tie_word_embeddings": False, "hidden_act": "relu"}
    ),
    "mixtral": ("mixtral", OLD_SPELLING),
    "mixtral, window 9, all experts": ("mixtral", {"sliding_window": 9, "num_experts_per_tok": 5}),
    "qwen2 moe": ("qwen2_moe", {}),
    "qwen2 moe, unbiased, one dense layer, windows": (
        "qwen2_moe",
        {"qkv_bias": False, "mlp_only_layers": [0], "norm_topk_prob": True, "use_sliding_window": True,
         "sliding_window": 11, "max_window_layers": 2, "num_hidden_layers": 3},
    ),
    "qwen3 moe": ("qwen3_moe", {}),
    "qwen3 moe, every second layer, yarn": (
        "qwen3_moe", {"decoder_sparse_step": 2, "norm_topk_prob": False, "rope": YARN, "num_hidden_layers": 4}
    ),
    "ernie moe": ("ernie4_5_moe", {}),
    "ernie moe, biases, untied, layers 1 to 3 by 2, none shared": (
        "ernie4_5_moe",
        {"use_bias": True, "tie_word_embeddings": False, "moe_layer_interval": 2, "moe_layer_end_index": 3,
         "num_hidden_layers": 6, "moe_num_shared_experts": 0, **OLD_SPELLING},
    ),
    "ernie moe, biases, tied, one shared": ("ernie4_5_moe", {"use_bias": True, "moe_num_shared_experts": 1}),
    "olmoe": ("olmoe", {}),
    "olmoe, clipped, biased": ("olmoe", {"clip_qkv": 0.7, "attention_bias": True, "norm_topk_prob": True}),
    "glm4 moe": ("glm4_moe", {}),
    "glm4 moe, two dense layers, no norms, a quarter rotates": (
        "glm4_moe",
        {"use_qk_norm": False, "partial_rotary_factor": 0.25, "first_k_dense_replace": 2, "num_hidden_layers": 4,
         "norm_topk_prob": False, "attention_bias": False, "n_group": 1, "topk_group": 1, **OLD_SPELLING},
    ),
    "glm4 moe lite, as published": ("glm4_moe_lite", OLD_SPELLING),
    "glm4 moe lite, kinds of layers, groups, straight query, biased, scaled yarn": (
        "glm4_moe_lite",
        {"mlp_layer_types": ["sparse", "dense", "sparse"], "num_hidden_layers": 3, "n_routed_experts": 8, "n_group": 2,
         "q_lora_rank": None, "attention_bias": True, "rope": YARN_SCALED, "norm_topk_prob": False},
    ),
    "dots1": ("dots1", OLD_SPELLING),
    "dots1, windows, biased, groups, not renormalised": (
        "dots1",
        {"attention_bias": True, "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"] * 2,
         "num_hidden_layers": 4, "n_group": 2, "norm_topk_prob": False, "num_key_value_heads": 6},
    ),
    "solar open": ("solar_open", OLD_SPELLING),
    "solar open, biased, groups, yarn, two shared": (
        "solar_open",
        {"attention_bias": True, "n_group": 3, "topk_group": 2, "rope": YARN, "n_shared_experts": 2,
         "routed_scaling_factor": 1.7, "norm_topk_prob": False},
    ),
    "minimax m2": ("minimax_m2", OLD_SPELLING),
    "minimax m2, all rotates, every expert, tied": (
        "minimax_m2",
        {"rotary_dim": 32, "num_local_experts": 5, "num_experts_per_tok": 5, "num_key_value_heads": 3,
         "tie_word_embeddings": True},
    ),
    "hunyuan 3": ("hy_v3", OLD_SPELLING),
    "hunyuan 3, biases, sparse first, two shared, linear": (
        "hy_v3",
        {"attention_bias": True, "mlp_bias": True, "mlp_layer_types": ["sparse", "dense", "sparse"], "rope": LINEAR,
         "num_hidden_layers": 3, "num_shared_experts": 2, "num_key_value_heads": 1},
    ),
    "deepseek v2": ("deepseek_v2", OLD_SPELLING),
    "deepseek v2, groups, query rank, all sparse, scaled yarn": (
        "deepseek_v2",
        {"topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "q_lora_rank": 24, "rope": YARN_SCALED,
         "first_k_dense_replace": 0, "routed_scaling_factor": 1.7, "attention_bias": True},
    ),
    "deepseek v3": ("deepseek_v3", {"rope": YARN_SCALED}),
    "deepseek v3, one group, straight query, halves, not renormalised": (
        "deepseek_v3",
        {"n_group": 1, "topk_group": 1, "q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False,
         "num_hidden_layers": 3, "first_k_dense_replace": 2, "n_shared_experts": 2, **OLD_SPELLING},
    ),
    "youtu": ("youtu", {}),
    "youtu, straight query, biased, scaled yarn": (
        "youtu", {"q_lora_rank": None, "attention_bias": True, "rope": YARN_SCALED, "tie_word_embeddings": False}
    ),
    "youtu, halves, wide values, linear": (
        "youtu", {"rope_interleave": False, "v_head_dim": 36, "qk_nope_head_dim": 8, "rope": LINEAR, **OLD_SPELLING}
    ),
    "gpt-oss": ("gpt_oss", {"rope": YARN_WHOLE}),
    "gpt-oss, its own rope": ("gpt_oss", OLD_SPELLING),
    "gpt-oss bfloat16, heads of 64, 32 experts": (
        "gpt_oss",
        {"dtype": "bfloat16", "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 160,
         "num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0, "rope": YARN_WHOLE, **OLD_SPELLING},
    ),
    "gpt-oss, unbiased, 4 layers, all experts, full first": (
        "gpt_oss",
        {"attention_bias": False, "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 4,
         "layer_types": ["full_attention", "sliding_attention"] * 2, "intermediate_size": 96, "sliding_window": 40},
    ),
    **ODD_HYBRIDS,
}  # fmt: skip

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "ernie4_5", "smollm3", "phi3", "internlm3", "ministral", "ministral3",
    "seed_oss", "exaone4", "hunyuan_v1_dense", "arcee", "mixtral", "qwen2_moe", "qwen3_moe", "ernie4_5_moe", "youtu",
    "deepseek_v2", "deepseek_v3", "gpt_oss", "olmoe", "glm4_moe", "glm4_moe_lite", "dots1", "solar_open", "minimax_m2",
    "hy_v3", "olmo2", "granite", "glm", "glm4", "gemma", "gemma2", "vaultgemma", "gemma4_text", "granitemoehybrid",
    "cohere", "cohere2", "stablelm", "phi", "nemotron", "jais2", "starcoder2", *HYBRIDS,
)  # fmt: skip
ROPES = {
    "linear": LINEAR,
    "dynamic": DYNAMIC,
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn tuned": YARN_TUNED,
    "yarn scaled": YARN_SCALED,
}
LONG = {
    f"{family}, {name}, style {style}": (family, {"rope": rope, "config_style": style, "num_hidden_layers": 3})
    for family in FAMILIES
    # They take longrope alone, figures that others lack, and ropes that others lack.
    if family not in ("phi3", "ministral3", "gemma4_text")
    for name, rope in ROPES.items()
    for style in (4, 5)
}
PROMPT_LENGTHS = (1, 5, 33, 70, 16)
ANSWER = 64


# Held to transformers in torch's row-invariant form; between them they have every layer that the others are made of.
INVARIANT = (
    "llama", "mistral", "qwen3", "qwen2_moe", "ernie4_5_moe", "youtu", "gpt_oss", "olmoe", "glm4_moe", "gemma4_text",
)  # fmt: skip


def _quick_cases() -> Iterator[Any]:
    """Every shape on the native kernels, or on torch where they leave it heads of other widths; each family on both."""
    seen = set(INVARIANT)
    for name, (family, options) in QUICK.items():
        is_native, is_first = options.get("head_dim", 16) % 16 == 0, family not in seen
        seen.add(family)
        if is_native:
            yield name, "native"
        yield pytest.param(name, "fast", marks=[] if is_first or not is_native else pytest.mark.long)


@pytest.mark.parametrize("name, backend", _quick_cases())
def test_greedy_answers_equal_those_of_transformers(name, backend, tmp_path):
    family, options = QUICK[name]
    _check(tiny_model(tmp_path, family, **options), backend)


@pytest.mark.parametrize(
    "family", [each if each in INVARIANT else pytest.param(each, marks=pytest.mark.long) for each in FAMILIES]
)
def test_the_row_invariant_operations_agree_with_transformers_too(family, tmp_path):
    _check(tiny_model(tmp_path, family, seed=3), "invariant")


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LONG)
def test_every_family_takes_every_rope_variant_in_both_spellings(name, backend, tmp_path):
    family, options = LONG[name]
    _check(tiny_model(tmp_path, family, **options), backend)


def _check(folder, backend: str) -> None:
    # Within the original context, where transformers' dynamic variant doesn't depend on the batch.
    model = load_on(backend, folder, dtype="float32")
    assert model.report.leftovers == []
    driven = HandDriven(model)
    draws = torch.Generator().manual_seed(7)
    rows = [driven.add(torch.randint(5, 300, (length,), generator=draws).tolist()) for length in PROMPT_LENGTHS]
    logits = driven.greedy(rows, ANSWER, budget=48)

    reference = _reference(folder)
    for row, length in enumerate(PROMPT_LENGTHS):
        text = torch.tensor([driven.histories[row]])
        with torch.inference_mode():
            expected = reference(text).logits[0, length - 1 : -1].float()
        assert expected.argmax(-1).tolist() == driven.histories[row][length:], f"prompt of {length}"
        difference = (expected.log_softmax(-1) - logits[row].log_softmax(-1)).abs().max().item()
        assert difference < 1e-3, f"prompt of {length}: log-probabilities differ by {difference}"


def _reference(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
