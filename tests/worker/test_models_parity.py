"""Every family against transformers in float32: greedy tokens equal, log-probabilities within 1e-3.

The rows run together, of mixed lengths, with their prompts in chunks; transformers sees each finished text alone, in
one pass. Its choice at every position of the answer is then what greedy decoding with it would have chosen.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import check_answers, drawn
from builders.native_variants import available_variants
from builders.tiny_configs import MIXTURE
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
MIXTURE_THAT_READS = MIXTURE | {
    "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 20, "top_k_experts": 5,
    "num_experts": 5, "attention_bias": True, "num_hidden_layers": 7,
    "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2 + ["full_attention"],
}  # fmt: skip

# Families with what their checkpoints have otherwise; the first of each family is as it is published.
# fmt: off
ALL: list[tuple[str, dict[str, Any]]] = [
    # Like Llama.
    ("llama", {}),
    ("llama", dict(rope=LLAMA3, num_attention_heads=15, num_key_value_heads=3, hidden_size=60, head_dim=4,
        tie_word_embeddings=True, config_style=4)),
    ("llama", dict(attention_bias=True, mlp_bias=True, rope=LINEAR)),
    ("mistral", OLD_SPELLING),
    ("mistral", dict(sliding_window=9)),
    ("mistral", dict(sliding_window=40, rope=YARN)),
    ("qwen2", {}),
    ("qwen2", dict(use_sliding_window=True, sliding_window=7, max_window_layers=1, rope=YARN_TUNED)),
    ("qwen2", dict(dtype="bfloat16", rope=DYNAMIC, num_key_value_heads=1, config_style=4)),
    ("qwen3", {}),
    ("qwen3", dict(rope=YARN, shards=3, tie_word_embeddings=False, config_style=4)),
    ("qwen3", dict(dtype="float16", attention_bias=True, num_key_value_heads=4)),
    ("ernie4_5", {}),
    ("ernie4_5", dict(use_bias=True, tie_word_embeddings=False, config_style=4)),
    ("ernie4_5", dict(rope=LINEAR, head_dim=14)),
    ("smollm3", OLD_SPELLING),
    ("smollm3", dict(no_rope_layers=None, no_rope_layer_interval=2, attention_bias=True, mlp_bias=True, rope=YARN,
        tie_word_embeddings=False, num_key_value_heads=6, head_dim=32)),
    ("smollm3", dict(no_rope_layers=[0] * 4)),
    ("smollm3", dict(use_sliding_window=True, sliding_window=9, no_rope_layers=[0, 1, 1, 0])),
    ("phi3", OLD_SPELLING),
    ("phi3", dict(rope=LONGROPE, original_max_position_embeddings=200, sliding_window=30, num_key_value_heads=1)),
    ("phi3", dict(
        rope={**LONGROPE, **{name: [1.0, 1.5, 2.0, 3.0, 4.5, 9.0] for name in ("short_factor", "long_factor")}},
        partial_rotary_factor=0.75, tie_word_embeddings=True, num_attention_heads=4, shards=2,
        original_max_position_embeddings=256, config_style=4)),
    ("internlm3", OLD_SPELLING),
    ("internlm3", dict(attention_bias=True, mlp_bias=True, rope=DYNAMIC)),
    ("ministral", OLD_SPELLING),
    ("ministral", dict(sliding_window=9, layer_types=["sliding_attention"] * 2, num_key_value_heads=6)),
    ("ministral3", dict(rope={**YARN_SCALED, "llama_4_scaling_beta": 0.1})),
    ("ministral3", dict(
        rope={**YARN, "original_max_position_embeddings": 9, "llama_4_scaling_beta": 0.8, "type": "yarn",
              "max_position_embeddings": 1024},
        tie_word_embeddings=True, sliding_window=60, num_key_value_heads=4)),
    ("exaone4", dict(rope=LLAMA3, config_style=4)),
    ("exaone4", dict(sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 4,
        num_key_value_heads=6)),
    ("exaone4", dict(sliding_window_pattern=2, layer_types=None, rope=YARN)),
    ("hunyuan_v1_dense", dict(rope={"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "mscale": 1.0})),
    ("hunyuan_v1_dense", dict(attention_bias=True, tie_word_embeddings=True, rope=YARN, num_key_value_heads=3,
        config_style=4)),
    ("arcee", OLD_SPELLING),
    ("arcee", dict(attention_bias=True, mlp_bias=True, rope=YARN, tie_word_embeddings=True)),
    ("seed_oss", OLD_SPELLING),
    ("seed_oss", dict(attention_out_bias=True, mlp_bias=True, rope=YARN, num_key_value_heads=5)),
    # Dense, with other norms or activations.
    ("olmo2", OLD_SPELLING),
    ("olmo2", dict(attention_bias=True, num_key_value_heads=1, tie_word_embeddings=True, rope=YARN, hidden_size=160,
        rms_norm_eps=1e-5)),
    ("granite", OLD_SPELLING),
    ("granite", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rope=LINEAR,
        embedding_multiplier=0.7, logits_scaling=0.25, residual_multiplier=1.3, attention_multiplier=0.3)),
    ("olmo3", OLD_SPELLING),
    ("olmo3", dict(num_key_value_heads=1, attention_bias=True, rope=YARN, hidden_size=160,
        layer_types=["full_attention", "sliding_attention"] * 2)),
    ("glm", OLD_SPELLING),
    ("glm4", OLD_SPELLING),
    ("glm4", dict(attention_bias=True, partial_rotary_factor=1.0, tie_word_embeddings=True, rope=LINEAR,
        num_key_value_heads=6)),
    ("gemma", OLD_SPELLING),
    ("gemma", dict(hidden_act="gelu_pytorch_tanh", attention_bias=True, tie_word_embeddings=False, hidden_size=70)),
    ("gemma2", OLD_SPELLING),
    ("gemma2", dict(attn_logit_softcapping=None, final_logit_softcapping=None, hidden_activation="gelu",
        layer_types=["full_attention", "sliding_attention"], attention_bias=True, num_key_value_heads=4)),
    ("gemma2", dict(dtype="bfloat16", num_hidden_layers=3, attn_logit_softcapping=50.0)),
    ("vaultgemma", OLD_SPELLING),
    ("gemma3_text", OLD_SPELLING),
    ("gemma3_text", dict(rope=LINEAR, num_key_value_heads=2, final_logit_softcapping=5.0, query_pre_attn_scalar=100,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, num_hidden_layers=6)),
    ("gemma4_text", {}),
    ("gemma4_text", dict(attention_k_eq_v=True, num_key_value_heads=4, num_global_key_value_heads=2,
        attention_bias=True, num_kv_shared_layers=0, hidden_size_per_layer_input=0, use_double_wide_mlp=False,
        tie_word_embeddings=False, use_bidirectional_attention="vision", final_logit_softcapping=None)),
    ("gemma4_text", dict(dtype="bfloat16", attention_k_eq_v=True, num_key_value_heads=2, use_double_wide_mlp=False,
        per_layer_config={str(layer): {"head_dim": 32, "num_key_value_heads": 4} for layer in (2, 6)},
        rope={"rope_type": "proportional", "factor": 2.0}, hidden_activation="gelu", hidden_size=64)),
    ("gemma4_text", dict(attention_bias=True, num_kv_shared_layers=2, num_hidden_layers=5,
        layer_types=["full_attention"] + ["sliding_attention"] * 4, global_head_dim=16, rope=YARN,
        num_attention_heads=3)),
    ("granitemoehybrid", OLD_SPELLING),
    ("granitemoehybrid", dict(position_embedding_type=None, attention_bias=True, layer_types=["attention"] * 3,
        num_hidden_layers=3)),
    ("cohere", OLD_SPELLING),
    ("cohere", dict(use_qk_norm=True, attention_bias=True, tie_word_embeddings=False, rope=LINEAR, logit_scale=2.5)),
    ("cohere2", OLD_SPELLING),
    ("cohere2", dict(attention_bias=True, layer_types=["sliding_attention"] * 2 + ["full_attention"] * 2, rope=YARN)),
    ("stablelm", OLD_SPELLING),
    ("stablelm", dict(qk_layernorm=True, use_parallel_residual=True, use_qkv_bias=False, partial_rotary_factor=0.5,
        hidden_size=64, tie_word_embeddings=True)),
    ("stablelm", dict(qk_layernorm=True, num_key_value_heads=4)),
    ("phi", OLD_SPELLING),
    ("phi", dict(hidden_act="gelu", partial_rotary_factor=1.0, tie_word_embeddings=True, rope=LINEAR)),
    ("nemotron", OLD_SPELLING),
    ("nemotron", dict(attention_bias=True, mlp_bias=True, partial_rotary_factor=1.0, tie_word_embeddings=True,
        hidden_act="silu")),
    ("jais2", OLD_SPELLING),
    ("starcoder2", OLD_SPELLING),
    ("starcoder2", dict(sliding_window=9, use_bias=False, tie_word_embeddings=False, hidden_act="relu")),
    # Mixtures.
    ("gemma4_text", MIXTURE),
    ("gemma4_text", MIXTURE_THAT_READS),
    ("mixtral", OLD_SPELLING),
    ("mixtral", dict(sliding_window=9, num_experts_per_tok=5)),
    ("qwen2_moe", {}),
    ("qwen2_moe", dict(qkv_bias=False, mlp_only_layers=[0], norm_topk_prob=True, use_sliding_window=True,
        sliding_window=11, max_window_layers=2, num_hidden_layers=3)),
    ("qwen3_moe", {}),
    ("qwen3_moe", dict(decoder_sparse_step=2, norm_topk_prob=False, rope=YARN, num_hidden_layers=4)),
    ("ernie4_5_moe", {}),
    ("ernie4_5_moe", dict(use_bias=True, tie_word_embeddings=False, moe_layer_interval=2, moe_layer_end_index=3,
        num_hidden_layers=6, moe_num_shared_experts=0, config_style=4)),
    ("ernie4_5_moe", dict(use_bias=True, moe_num_shared_experts=1)),
    ("olmoe", {}),
    ("olmoe", dict(clip_qkv=0.7, attention_bias=True, norm_topk_prob=True)),
    ("glm4_moe", {}),
    ("glm4_moe", dict(use_qk_norm=False, partial_rotary_factor=0.25, first_k_dense_replace=2, num_hidden_layers=4,
        norm_topk_prob=False, attention_bias=False, n_group=1, topk_group=1, config_style=4)),
    ("dots1", OLD_SPELLING),
    ("dots1", dict(attention_bias=True, sliding_window=9, layer_types=["full_attention", "sliding_attention"] * 2,
        num_hidden_layers=4, n_group=2, norm_topk_prob=False, num_key_value_heads=6)),
    ("solar_open", OLD_SPELLING),
    ("solar_open", dict(attention_bias=True, n_group=3, topk_group=2, rope=YARN, n_shared_experts=2,
        routed_scaling_factor=1.7, norm_topk_prob=False)),
    ("minimax_m2", OLD_SPELLING),
    ("minimax_m2", dict(rotary_dim=32, num_local_experts=5, num_experts_per_tok=5, num_key_value_heads=3,
        tie_word_embeddings=True)),
    ("hy_v3", OLD_SPELLING),
    ("hy_v3", dict(attention_bias=True, mlp_bias=True, mlp_layer_types=["sparse", "dense", "sparse"], rope=LINEAR,
        num_hidden_layers=3, num_shared_experts=2, num_key_value_heads=1)),
    ("gpt_oss", dict(rope=YARN_WHOLE)),
    ("gpt_oss", OLD_SPELLING),
    ("gpt_oss", dict(dtype="bfloat16", num_attention_heads=3, num_key_value_heads=1, head_dim=64, hidden_size=160,
        num_local_experts=32, num_experts_per_tok=4, swiglu_limit=7.0, rope=YARN_WHOLE, config_style=4)),
    ("gpt_oss", dict(attention_bias=False, num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=4,
        layer_types=["full_attention", "sliding_attention"] * 2, intermediate_size=96, sliding_window=40)),
    # With latents.
    ("glm4_moe_lite", OLD_SPELLING),
    ("glm4_moe_lite", dict(mlp_layer_types=["sparse", "dense", "sparse"], num_hidden_layers=3, n_routed_experts=8,
        n_group=2, q_lora_rank=None, attention_bias=True, rope=YARN_SCALED, norm_topk_prob=False)),
    ("deepseek_v2", OLD_SPELLING),
    ("deepseek_v2", dict(topk_method="group_limited_greedy", n_group=3, topk_group=2, q_lora_rank=24, rope=YARN_SCALED,
        first_k_dense_replace=0, routed_scaling_factor=1.7, attention_bias=True)),
    ("deepseek_v3", dict(rope=YARN_SCALED)),
    ("deepseek_v3", dict(n_group=1, topk_group=1, q_lora_rank=None, rope_interleave=False, norm_topk_prob=False,
        num_hidden_layers=3, first_k_dense_replace=2, n_shared_experts=2, config_style=4)),
    ("youtu", {}),
    ("youtu", dict(q_lora_rank=None, attention_bias=True, rope=YARN_SCALED, tie_word_embeddings=False)),
    ("youtu", dict(rope_interleave=False, v_head_dim=36, qk_nope_head_dim=8, rope=LINEAR, config_style=4)),
    # With states.
    ("qwen3_next", OLD_SPELLING),
    ("qwen3_next", dict(attention_bias=True, mlp_only_layers=[1], norm_topk_prob=False, num_hidden_layers=4,
        layer_types=["full_attention", "linear_attention"] * 2, partial_rotary_factor=0.5)),
    ("qwen3_5_text", dict(rope={"partial_rotary_factor": 0.25})),
    ("qwen3_5_text", dict(tie_word_embeddings=True, attention_bias=True, linear_num_key_heads=4, num_hidden_layers=5,
        full_attention_interval=3, linear_conv_kernel_dim=2, rope=YARN, linear_key_head_dim=40)),
    ("qwen3_5_moe_text", {}),
    ("qwen3_5_moe_text", dict(dtype="bfloat16", linear_num_value_heads=12, num_experts=4, num_key_value_heads=4)),
    ("lfm2", OLD_SPELLING),
    ("lfm2", dict(conv_bias=True, full_attn_idxs=None, layer_types=["full_attention", "conv", "conv"],
        tie_embedding=False, tie_word_embeddings=False, block_auto_adjust_ff_dim=False, conv_L_cache=7)),
    ("lfm2_moe", {}),
    ("lfm2_moe", dict(num_dense_layers=0, use_expert_bias=False, conv_bias=True, routed_scaling_factor=1.7,
        norm_topk_prob=False)),
]
# Families whose first shape is computed by torch too, in its row-invariant and in its fast form; between them they have
# every layer that the others are made of.
ON_TORCH = {
    "invariant": (
        "llama", "mistral", "qwen3", "qwen2_moe", "ernie4_5_moe", "youtu", "gpt_oss", "olmoe", "glm4_moe",
        "gemma4_text",
    ),
    "fast": (
        "smollm3", "phi3", "hunyuan_v1_dense", "olmo2", "glm4", "gemma2", "gemma3_text", "granite", "cohere",
        "stablelm", "phi", "nemotron", "mixtral", "deepseek_v2", "deepseek_v3", "hy_v3", "qwen3_next", "lfm2_moe",
    ),
}
# fmt: on


def compare(folder: Path, answers: dict[str, int]) -> None:
    """Answers of so many tokens on each of these backends, within the original context, where transformers' dynamic
    variant doesn't depend on the batch."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for backend, num_tokens in answers.items():
        model = load_on(backend, folder, dtype="float32")
        assert model.report.leftovers == []
        check_answers(model, reference, drawn(1, 70), num_tokens, budget=48)


@for_each("family, options", ALL)
def test_every_family_answers_as_transformers_does(family, options, tmp_path):
    """On the native kernels, and on torch where there are none, or none for such heads, or the table above says so.
    Answers are short: windows and ropes end within the prompts."""
    is_native = options.get("head_dim", 16) % 16 == 0
    is_first = next(own for other, own in ALL if other == family) == options
    answers = {"native": 8} if is_native and available_variants() else {}
    answers |= {backend: 3 for backend, families in ON_TORCH.items() if is_first and family in families}
    if not is_native or not answers:
        answers["fast"] = 3
    compare(tiny_model(tmp_path, family, **options), answers)


@pytest.mark.long
@pytest.mark.parametrize("family, options", ALL, ids=str)
def test_every_shape_answers_as_transformers_does_on_torch(family, options, tmp_path):
    compare(tiny_model(tmp_path, family, seed=3, **options), {"fast": 64, "invariant": 64})
