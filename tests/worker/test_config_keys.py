"""Every key that transformers' class of a family reads is read here too, or refused where it would change an answer.

Keys that the class doesn't read are ignored, unless they name a mechanism that nobody would see in the tensors.
"""

import dataclasses
import inspect
import json
import re
from contextlib import suppress

import pytest
from builders.cases import for_each
from builders.tiny_configs import FAMILIES as TINY
from builders.tiny_configs import change_config, class_of, described
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description import config as reading
from penstock.worker.description.config import read_config
from penstock.worker.description.families.encoders import ENCODERS
from penstock.worker.description.families.table import FAMILIES
from penstock.worker.description.families.vision import VISION_FAMILIES
from penstock.worker.description.keys.family_keys import FAMILY_KEYS, FamilyKeys
from penstock.worker.description.keys.unread_keys import mechanism_of
from penstock.worker.start.notes import notes_on_context

# Other models' configs ask for these, and models of these families don't have them.
FEATURES_OF_OTHERS = {
    "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256,
    "attention_multiplier": 0.5, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
    "logit_scale": 0.0625, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "use_qk_norm": True,
    "qk_layernorm": True, "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4, "alibi": True,
    "pos_emb": "alibi", "position_embedding_type": "nope", "partial_rotary_factor": 0.5, "rotary_pct": 0.25,
    "rope_interleaved": True, "parallel_attn": True, "use_parallel_residual": True, "is_causal": False,
    "use_bidirectional_attention": True, "layer_types": ["sliding_attention", "full_attention"],
    "attention_type": "lightning", "attn_type": "mla", "num_local_experts": 8, "kv_lora_rank": 512,
    "mamba_d_state": 16, "linear_attn_config": {"num_heads": 2}, "linear_conv_kernel_dim": 4,
    "per_layer_config": {"0": {"head_dim": 8}}, "norm_type": "layernorm", "num_kv_shared_layers": 2,
    "quantization": {"bits": 4}, "attn_temperature_tuning": True, "sparse_attention": True, "index_topk": 64,
    "sparse_config": {"topk": 64, "dense_len": -1}, "dual_chunk_attention_config": {"chunk_size": 8, "local_size": 8},
    "sliding_window": "4k", "attention_chunk_size": 1.5, "attention_layers": ["global", "local"],
    "attention_sink_size": 4, "use_retention": True, "use_xpos": True, "use_logn_attn": True, "use_rope": 0,
    "alibi_bias_max": 8, "rotary_percent": 0.5, "rope_fraction": 0.25, "rope_condense_ratio": 8, "rope_ratio": 500,
}  # fmt: skip


@for_each("key, value", FEATURES_OF_OTHERS.items())
def test_a_feature_that_would_change_the_answers_is_refused_with_its_key_and_value(tmp_path, key, value):
    with pytest.raises(ConfigError) as refusal:
        read_config(change_config(tiny_model(tmp_path, "llama"), **{key: value}))
    words = str(refusal.value)
    assert key in words or "rotate" in words
    assert str(tmp_path) in words
    if key == "final_logit_softcapping":
        assert "final_logit_softcapping=30.0 asks for a bound of values, which is not supported" in words
        assert "remove this key from config.json" in words


# By family, one of its keys, a value that it may have, and one that it may not have.
FIXED = {
    "qwen3_moe": ("use_qk_norm", True, False),  # as Qwen3-Coder's configs say
    "qwen3": ("use_qk_norm", True, False),
    "deepseek_v2": ("rope_interleave", True, False),
    "hy_v3": ("route_norm", True, False),
    "olmoe": ("clip_qkv", 8.0, 0),
    "llama": ("clip_qkv", None, 8.0),
    "phi": ("qk_layernorm", False, True),
    # By the name that it had before.
    "stablelm": ("rope_pct", 0.25, 0.75),
    "cohere": ("use_parallel_block", True, False),
}


@for_each("family", FIXED)
def test_a_key_may_say_what_a_family_does_in_any_case_and_nothing_else(tmp_path, family):
    key, right, wrong = FIXED[family]
    assert read_config(change_config(tiny_model(tmp_path, family), **{key: right}))
    with pytest.raises(ConfigError, match=key):
        read_config(change_config(tmp_path, **{key: wrong}))


# Published configs of these families say this beside what transformers' classes read.
PUBLISHED = {
    "minimax_m2": {
        "attn_type_list": [1, 1], "attn_window_size": None, "layernorm_full_attention_beta": 1.0,
        "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta": 1.0, "mlp_intermediate_size": 8192,
        "mtp_transformer_layers": 1, "num_expert_group": None, "num_mtp_modules": 3, "qk_norm_type": "per_layer",
        "routed_scaling_factor": 1.0, "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "topk_group": None,
        "swa_rope_theta": -1.0, "use_grouped_topk": True, "use_mtp": True, "use_routing_bias": True,
    },
    "glm4_moe_lite": {"first_k_dense_replace": 1, "partial_rotary_factor": 1.0, "topk_method": "noaux_tc"},
    "dots1": {
        "aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1, "scoring_func": "noaux_tc", "seq_aux": True,
        "topk_method": "noaux_tc", "use_sliding_window": False,
    },
}  # fmt: skip
# Those of them that would be another model.
UNPUBLISHED = {
    "minimax_m2": {"attn_type_list": [1, 0], "qk_norm_type": "per_head"},
    "glm4_moe_lite": {"topk_method": "greedy", "mlp_layer_types": ["dense"]},
    "dots1": {"scoring_func": "softmax", "moe_layer_freq": 2},
}


@for_each("family", PUBLISHED)
def test_keys_of_published_mixtures_are_taken_as_they_are_published(tmp_path, family):
    expected = read_config(tiny_model(tmp_path, family))
    assert read_config(change_config(tmp_path, **PUBLISHED[family])) == expected
    for key, value in UNPUBLISHED[family].items():
        with pytest.raises(ConfigError, match=key):
            read_config(change_config(tiny_model(tmp_path, family), **{key: value}))


# Plain attention is exact up to some length with these, and so is the context.
CUTS = {
    "sliding_window": (16, 16), "window_size": (32, 32), "swa_window_size": (48, 48),
    "attention_window_size": ([64, None, 32], 32), "attention_chunk_size": (512, 512),
    "sparse_config": ({"kernel_size": 32, "topk": 64, "dense_len": 256}, 256),
    "dual_chunk_attention_config": ({"chunk_size": 80, "local_size": 8, "original_max_position_embeddings": 96}, 72),
}  # fmt: skip


@for_each("key", CUTS)
def test_a_context_ends_where_attention_becomes_another_and_says_why(tmp_path, key):
    value, longest = CUTS[key]
    config = read_config(change_config(tiny_model(tmp_path, "llama"), **{key: value}))
    assert config.max_position == longest
    [note] = notes_on_context(config)
    assert f"ends at {longest} of 1,024 tokens" in note and f"{key} in config.json" in note
    assert not list(notes_on_context(read_config(change_config(tmp_path, **{key: None}))))


# With these values the same features are switched off, or it's no feature at all: published configs carry such keys.
CHANGES_NOTHING = {
    "sparse_config": {"enabled": False, "topk": 64}, "use_infllm": "false", "mamba_type": " None ", "rope_ratio": 1,
    "final_logit_softcapping": None, "query_pre_attn_scalar": 16, "attention_multiplier": 0.25, "logit_scale": 1.0,
    "embedding_multiplier": 1, "use_qk_norm": False, "no_rope_layers": [1, 1], "rope_interleaved": False,
    "use_mrope": False, "partial_rotary_factor": 1.0, "is_causal": True, "layer_types": ["full_attention"] * 2,
    "num_experts": 0, "vision_config": {}, "norm_type": "rmsnorm", "n_layer": 2, "layer_norm_eps": 1e-5,
    "_name_or_path": "a/b", "transformers_version": "4.40.0", "auto_map": {"AutoModelForCausalLM": "m.X"},
    "unsloth_version": "2025.1", "task_specific_params": {"a": 1}, "pretraining_tp": 8, "max_window_layers": 28,
    "_attn_implementation": "sdpa", "temperature": 0.7, "max_sequence_length": 2048, "image_token_id": 7,
    "initializer_range": 0.5, "router_aux_loss_coef": 0.1, "use_flash_attn": True, "hidden_act": "swish",
    "my_companys_ticket": "A-17", "use_kv_cache": True, "rope_type": "default", "pos_emb": "rope",
    "use_fused_rope": True, "attention_type": "gqa", "act_fn": "silu", "activation": "swiglu", "gated_mlp": True,
    "my_own_residual_scale": 0.5, "lora_config": {"r": 8}, "kl_beta": 0.1, "use_mamba_kernels": True, "n_head": 99,
    "use_rope": 1, "attention_layers": ["global"] * 2, "attention_sink_size": -1, "use_retention": False,
    "use_xpos": None, "use_logn_attn": False, "window_size": 2048, "swa_window_size": -1, "attention_layers_count": 2,
    "attention_softmax_in_fp32": True, "sparsity": 0.5, "window": 7, "sliding_window": 4096, "hidden_dropout": 0.1,
    "rotary_percent": 1.0,
}  # fmt: skip


@for_each("changes", [
    *({key: value} for key, value in CHANGES_NOTHING.items()),
    {"sliding_window": 16, "use_sliding_window": False},
    *({"norm_type": name} for name in ("rms_layernorm", "RMSLayerNorm", "rms-layer_norm")),
    {"alibi": None, "alibi_bias_max": 8},
    {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},  # which the class ignores
    {"num_experts": 0, "num_experts_per_tok": 8, "norm_topk_prob": True},  # idle where there are none
])  # fmt: skip
def test_a_value_that_changes_nothing_and_bookkeeping_are_accepted(tmp_path, changes):
    assert read_config(change_config(tiny_model(tmp_path, "llama"), **changes)).cut is None


def test_figures_of_rotary_positions_that_another_familys_class_reads_are_refused_and_those_of_none_ignored(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
    idle = {"attn_factor": 0.87, "extrapolation_factor": 2.0, "finetuned": True, "alpha": None, "ratio": 3}
    assert read_config(tiny_model(tmp_path, "llama", rope=yarn | idle))
    for name, value in (("alpha", 1000.0), ("llama_4_scaling_beta", 0.1)):
        with pytest.raises(ConfigError, match=f"{name}={value} among the figures of rotary positions changes the ang"):
            read_config(tiny_model(tmp_path, "llama", rope=yarn | {name: value}))


# --- walks over transformers' classes ---------------------------------------------------------------------------------


# Those of training, of bookkeeping, and of how it is computed; and those that are read where other keys ask for it.
IDLE = re.compile(
    r".*(dropout|pdrop|initializer_range|_token_id|loss_coef|jitter_noise)|_attn_implementation|output_router_logits"
    r"|n_group|topk_group|moe_intermediate_size|top_k_experts|head_dim|num_experts_per_tok|time_step_limit"
    r"|enable_moe_fp32_combine"
)


@for_each("family", TINY)
def test_every_key_that_the_class_of_a_family_reads_is_read_here_or_has_a_row(tmp_path, monkeypatch, family):
    """A key that a new transformers reads needs one, or must be honoured."""
    known: set[str] = set()
    monkeypatch.setattr(reading, "unsupported_keys", lambda given, config, *rest: known.update(config.read) or [])
    read_config(tiny_model(tmp_path, family))
    own = FAMILY_KEYS.get(family, FamilyKeys())
    known |= {*own.fixed, *own.other_names, *own.harmless.split()}
    by_class = {key for key in keys_read_by_class(family) if key not in known and not IDLE.fullmatch(key)}
    assert [key for key in by_class if mechanism_of(key) is None] == []


def keys_read_by_class(family):
    """By the name under which a config has them."""
    kind = class_of(family)
    text = inspect.getsource(inspect.getmodule(kind))
    modeling = inspect.getfile(kind).replace("configuration_", "modeling_")
    with suppress(FileNotFoundError), open(modeling, encoding="utf-8") as source:
        text = source.read()
    fields = {field.name for field in dataclasses.fields(kind)} | set(kind.attribute_map)
    read = set(re.findall(r"\bconfig\.(\w+)", text)) & fields
    read |= set(re.findall(r"getattr\((?:self\.)?config, \"(\w+)\"", text))
    return {kind.attribute_map.get(key, key) for key in read} - {"_experts_implementation"}


def test_rows_of_families_belong_to_families():
    families = (*FAMILIES.values(), *VISION_FAMILIES.values(), *ENCODERS.values())
    assert set(FAMILY_KEYS) <= {family.name for family in families}


NOT_IN_TRANSFORMERS = {"internlm2", "minicpm"}
# Of models that see, whose configs as their classes save them are read by `test_sight.py` and `test_ernie_sees.py`.
TEXT_PARTS = {"qwen2_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "ernie4_5_vl_moe_text"}
FAMILY_NAMES = sorted({family.name for family in FAMILIES.values()} - NOT_IN_TRANSFORMERS - TEXT_PARTS)


@for_each("family", FAMILY_NAMES)
def test_a_config_as_its_own_class_saves_it_or_with_other_names_of_its_keys_is_read_as_the_original(tmp_path, family):
    from transformers import AutoConfig

    folder = tiny_model(tmp_path / "original", family)
    expected, original = read_config(folder), (folder / "config.json").read_text()
    own = AutoConfig.from_pretrained(folder)
    own.save_pretrained(tmp_path / "saved")
    assert described(read_config(tmp_path / "saved")) == described(expected)
    for other, name in type(own).attribute_map.items():
        given = json.loads(original)
        pair = (other, name) if name in given else (name, other)  # which of the two is read differs by family
        if pair[1] not in given:
            continue
        value = given.pop(pair[1])
        (folder / "config.json").write_text(json.dumps(given | {pair[0]: value}))
        assert read_config(folder) == expected, pair
        different = value * 2 if isinstance(value, list) else value + 1
        (folder / "config.json").write_text(json.dumps(given | {pair[0]: different, pair[1]: value}))
        if name != "num_nextn_predict_layers":
            with pytest.raises(ConfigError):
                read_config(folder)


@for_each("family", [name for name, own in FAMILY_KEYS.items() if own.fixed and name in TINY])
def test_a_key_that_is_right_with_some_values_only_is_refused_with_another(family, tmp_path):
    original = (tiny_model(tmp_path, family) / "config.json").read_text()
    for key, values in FAMILY_KEYS[family].fixed.items():
        for value in values:
            read_config(change_config(tmp_path, **{key: value}))
        wrong = not values[0] if values[0] in (True, False) else "other"
        with pytest.raises(ConfigError, match=f"{key}="):
            read_config(change_config(tmp_path, **{key: wrong}))
        (tmp_path / "config.json").write_text(original)
