"""Whatever a config.json says is read, or refused in a sentence that names the file: quickly, and by no other error."""

import json
import math

from builders.cases import for_each
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.layers.rope import inverse_frequencies

ODD = [None, True, "x", "", [], ["a"], {}, {"a": 1}, 0, -1, 1.5, -1.0, math.nan, math.inf, 10**12, 10**30, "LONG"]
KEYS = [
    "architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size", "max_position_embeddings", "rope_theta",
    "rope_scaling", "rope_parameters", "tie_word_embeddings", "torch_dtype", "dtype", "hidden_act", "sliding_window",
    "use_sliding_window", "layer_types", "max_window_layers", "attention_bias", "quantization_config",
    "num_nextn_predict_layers", "partial_rotary_factor", "original_max_position_embeddings",
]  # fmt: skip


def outcome(folder, config):
    """What is read, or the refusal."""
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
READ = {
    "llama": KEYS,
    **{family: KEYS[n::4] for n, family in enumerate(OTHERS)},
    **dict.fromkeys(MIXTURES, KEYS_OF_EXPERTS),
}


@for_each("family", READ)
def test_any_value_is_taken_or_refused_with_its_key(tmp_path, family):
    config = json.loads((tiny_model(tmp_path, family) / "config.json").read_text())
    for key in (key for key in READ[family] if key in config or family not in MIXTURES):
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
