"""Configs as they are published, of families with ropes or layouts of their own, are read; and so is what transformers
5 makes of them.
"""

import json
from typing import Any

from builders.cases import for_each
from builders.tiny_configs import described

from penstock.worker.models.config import ModelConfig, read_config

_PHI = dict(
    architectures=["Phi3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=1,
    auto_map={"AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
    embd_pdrop=0.0, hidden_act="silu", initializer_range=0.02, model_type="phi3", pad_token_id=32000, resid_pdrop=0.0,
    rms_norm_eps=1e-5, torch_dtype="bfloat16", use_cache=True, hidden_size=3072, num_hidden_layers=32,
    intermediate_size=8192, eos_token_id=32000, rope_theta=10000.0, tie_word_embeddings=False, vocab_size=32064,
)  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "Phi-3-mini-128k-instruct": _PHI | dict(
        max_position_embeddings=131072, num_attention_heads=32, num_key_value_heads=32, sliding_window=262144,
        original_max_position_embeddings=4096,
        rope_scaling={"type": "longrope", "short_factor": [1.05] * 48, "long_factor": [1.07] * 24 + [64.0] * 24},
    ),
    "Phi-3-mini-4k-instruct": _PHI | dict(
        max_position_embeddings=4096, num_attention_heads=32, num_key_value_heads=32, sliding_window=2047,
        original_max_position_embeddings=4096, rope_scaling=None,
    ),
    "phi-4": _PHI | dict(
        max_position_embeddings=16384, original_max_position_embeddings=16384, num_attention_heads=40,
        num_key_value_heads=10, num_hidden_layers=40, hidden_size=5120, intermediate_size=17920, rope_theta=250000,
        rope_scaling=None, sliding_window=None, vocab_size=100352, bos_token_id=100257, eos_token_id=100265,
        pad_token_id=100349,
    ),
    "Phi-4-mini-instruct": _PHI | dict(
        max_position_embeddings=131072, original_max_position_embeddings=4096, num_attention_heads=24,
        num_key_value_heads=8, partial_rotary_factor=0.75, sliding_window=262144, tie_word_embeddings=True,
        vocab_size=200064, full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False,
        bos_token_id=199999, eos_token_id=199999, pad_token_id=199999,
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.1] * 20 + [47.0] * 28},
    ),
    "SmolLM3-3B": dict(
        architectures=["SmolLM3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=128000,
        eos_token_id=128012, hidden_act="silu", hidden_size=2048, initializer_range=0.02, intermediate_size=11008,
        layer_types=["full_attention"] * 36, max_position_embeddings=65536, max_window_layers=28, mlp_bias=False,
        model_type="smollm3", no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9, num_attention_heads=16,
        num_hidden_layers=36, num_key_value_heads=4, pad_token_id=128004, pretraining_tp=2, rms_norm_eps=1e-6,
        rope_scaling=None, rope_theta=5000000.0, sliding_window=None, torch_dtype="bfloat16", use_cache=False,
        use_sliding_window=False, vocab_size=128256,
    ),
    "internlm2_5-7b-chat": dict(
        architectures=["InternLM2ForCausalLM"], attn_implementation="eager", bias=False, bos_token_id=1, eos_token_id=2,
        auto_map={"AutoModelForCausalLM": "modeling_internlm2.InternLM2ForCausalLM"}, hidden_act="silu",
        hidden_size=4096, initializer_range=0.02, intermediate_size=14336, max_position_embeddings=32768,
        model_type="internlm2", num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, pad_token_id=2,
        rms_norm_eps=1e-5, rope_scaling={"type": "dynamic", "factor": 2.0}, rope_theta=1000000, use_cache=True,
        tie_word_embeddings=False, torch_dtype="bfloat16", vocab_size=92544, pretraining_tp=1,
    ),
    "internlm3-8b-instruct": dict(
        architectures=["InternLM3ForCausalLM"], attention_dropout=0.0, bias=False, bos_token_id=1, eos_token_id=2,
        head_dim=128, hidden_act="silu", hidden_size=4096, initializer_range=0.02, intermediate_size=10240,
        max_position_embeddings=32768, model_type="internlm3", num_attention_heads=32, num_hidden_layers=48,
        num_key_value_heads=2, pad_token_id=2, qkv_bias=False, rms_norm_eps=1e-5, rope_theta=50000000,
        rope_scaling={"factor": 6.0, "rope_type": "dynamic"}, tie_word_embeddings=False, torch_dtype="bfloat16",
        use_cache=True, vocab_size=128512,
    ),
    "Ministral-8B-Instruct-2410": dict(
        architectures=["MistralForCausalLM"], attention_dropout=0.0, bos_token_id=1, eos_token_id=2, head_dim=128,
        hidden_act="silu", hidden_size=4096, initializer_range=0.02, intermediate_size=12288,
        max_position_embeddings=32768, model_type="mistral", num_attention_heads=32, num_hidden_layers=36,
        num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=100000000.0, sliding_window=32768,
        tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, vocab_size=131072,
    ),
    "Seed-OSS-36B-Instruct": dict(
        architectures=["SeedOssForCausalLM"], attention_bias=True, attention_dropout=0.1, attention_out_bias=False,
        bos_token_id=0, pad_token_id=1, eos_token_id=2, head_dim=128, hidden_act="silu", hidden_size=5120,
        initializer_range=0.02, intermediate_size=27648, max_position_embeddings=524288, mlp_bias=False,
        model_type="seed_oss", num_attention_heads=80, num_hidden_layers=64, num_key_value_heads=8,
        residual_dropout=0.1, rms_norm_eps=1e-6, rope_scaling={"rope_type": "default"}, rope_theta=10000000.0,
        tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, vocab_size=155136,
    ),
    "EXAONE-4.0-32B": dict(
        architectures=["Exaone4ForCausalLM"], attention_dropout=0.0, bos_token_id=1, eos_token_id=361, head_dim=128,
        hidden_act="silu", hidden_size=5120, initializer_range=0.02, intermediate_size=27392,
        layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16, max_position_embeddings=131072,
        model_type="exaone4", num_attention_heads=40, num_hidden_layers=64, num_key_value_heads=8, pad_token_id=0,
        rms_norm_eps=1e-5, rope_theta=1000000, sliding_window=4096, sliding_window_pattern="LLLG", use_cache=True,
        rope_scaling={"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3",
                      "original_max_position_embeddings": 8192},
        tie_word_embeddings=False, torch_dtype="bfloat16", vocab_size=102400,
    ),
    "Hunyuan-1.8B-Instruct": dict(
        add_classification_head=False, architectures=["HunYuanDenseV1ForCausalLM"], attention_bias=False,
        attention_dropout=0.0, attention_head_dim=128, bos_token_id=1, cla_share_factor=2, class_num=0,
        dense_list=[2048, 0], eod_token_id=127967, eos_token_id=127960, head_dim=128, hidden_act="silu",
        hidden_size=2048, im_end_id=5, im_newline_id=11, im_start_id=4, initializer_range=0.02, intermediate_size=6144,
        mask_init_id=12, max_position_embeddings=32768, mlp_bias=False, model_type="hunyuan_v1_dense", norm_type="rms",
        num_attention_heads=16, num_hidden_layers=32, num_key_value_heads=4, org_vocab_size=128167,
        pad_token_id=127961, pool_type="last", pretraining_tp=1, rms_norm_eps=1e-5, rope_theta=10000.0,
        rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                      "mscale_all_dim": 1.0, "type": "dynamic"},
        sep_token_id=127962, text_end_id=7, text_start_id=6, tie_word_embeddings=True, torch_dtype="bfloat16",
        use_cache=True, use_cla=False, use_qk_norm=True, vocab_size=120818,
    ),
    "AFM-4.5B": dict(
        architectures=["ArceeForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=127000,
        eos_token_id=127001, head_dim=128, hidden_act="relu2", hidden_size=2560, initializer_range=0.02,
        intermediate_size=18432, max_position_embeddings=65536, mlp_bias=False, model_type="arcee",
        num_attention_heads=20, num_hidden_layers=36, num_key_value_heads=4, rms_norm_eps=1e-5, rope_theta=10000.0,
        rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 20.0, "mscale": 1.0, "rope_type": "yarn",
                      "original_max_position_embeddings": 4096, "type": "yarn"},
        tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=False, vocab_size=128004,
    ),
    "Ministral-3-3B-Instruct-2512": dict(
        architectures=["Mistral3ForConditionalGeneration"], dtype="bfloat16", image_token_index=10,
        model_type="mistral3", multimodal_projector_bias=False, projector_hidden_act="gelu", spatial_merge_size=2,
        vision_feature_layer=-1,
        quantization_config={"activation_scheme": "static", "dequantize": False, "quant_method": "fp8",
                             "modules_to_not_convert": ["model.vision_tower", "lm_head"], "weight_block_size": None},
        text_config=dict(
            attention_dropout=0.0, head_dim=128, hidden_act="silu", hidden_size=3072, initializer_range=0.02,
            intermediate_size=9216, max_position_embeddings=262144, model_type="ministral3", num_attention_heads=32,
            num_hidden_layers=26, num_key_value_heads=8, rms_norm_eps=1e-5, sliding_window=None, use_cache=True,
            tie_word_embeddings=True, vocab_size=131072,
            rope_parameters={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1,
                             "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
                             "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn"},
        ),
        vision_config=dict(
            head_dim=64, hidden_act="silu", hidden_size=1024, image_size=1540, intermediate_size=4096,
            model_type="pixtral", num_attention_heads=16, num_hidden_layers=24, patch_size=14,
        ),
    ),
}  # fmt: skip
CONTEXTS = {"Phi-3-mini-4k-instruct": 4096, "phi-4": 16384, "SmolLM3-3B": 65536, "internlm2_5-7b-chat": 65536}
CONTEXTS |= {"internlm3-8b-instruct": 196608, "Ministral-8B-Instruct-2410": 32768, "Seed-OSS-36B-Instruct": 524288}
CONTEXTS |= {"Hunyuan-1.8B-Instruct": 32768}
CONTEXTS |= {"AFM-4.5B": 81920, "Ministral-3-3B-Instruct-2512": 262144}
OF_REMOTE_CODE = ("internlm2_5-7b-chat",)


def read(folder, config: dict[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(config))
    return read_config(folder)


@for_each("name", PUBLISHED)
def test_a_published_config_is_read(tmp_path, name):
    assert read(tmp_path, PUBLISHED[name]).max_position == CONTEXTS.get(name, 131072)


@for_each("name", [name for name in PUBLISHED if name not in OF_REMOTE_CODE])
def test_what_transformers_5_makes_of_a_published_config_is_read_alike(tmp_path, name):
    from transformers import AutoConfig

    original = read(tmp_path, PUBLISHED[name])
    AutoConfig.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert described(read_config(tmp_path)) == described(original)
