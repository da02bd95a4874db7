"""Every key that transformers' classes have is read, harmless, or refused by name where it would change an answer."""

import dataclasses
import json
from contextlib import suppress

import pytest
from builders.cases import for_each
from builders.tiny_configs import FAMILIES as TINY
from builders.tiny_configs import change_config, described
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.models.config import read_config
from penstock.worker.models.config_keys import words_of
from penstock.worker.models.families import FAMILIES
from penstock.worker.models.family_keys import FAMILY_KEYS
from penstock.worker.models.key_tables import COMPUTATIONS, FEATURES, HARMLESS, HARMLESS_WORDS, OTHER_NAMES
from penstock.worker.models.vision_families import VISION_FAMILIES


def is_known(key: str) -> bool:
    name, words = key.lstrip("_"), words_of(key)
    return bool(
        HARMLESS.fullmatch(key)
        or HARMLESS_WORDS.search(words)
        or name in FEATURES
        or name in OTHER_NAMES
        or any(computation.words.search(words) for computation in COMPUTATIONS)
    )


# Other models' configs ask for these, and models of these families don't have them.
FEATURES_OF_OTHERS = {
    "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256,
    "attention_multiplier": 0.5, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0,
    "logit_scale": 0.0625, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "use_qk_norm": True,
    "qk_layernorm": True, "attn_output_gate": True, "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4,
    "alibi": True, "partial_rotary_factor": 0.5, "rotary_pct": 0.25, "parallel_attn": True,
    "use_parallel_residual": True, "is_causal": False, "attention_chunk_size": 8192, "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"], "num_local_experts": 8, "kv_lora_rank": 512,
    "mamba_d_state": 16, "linear_conv_kernel_dim": 4, "vision_config": {"depth": 2}, "lm_head_bias": True,
    "per_layer_config": {"0": {"head_dim": 8}}, "norm_type": "layernorm", "use_sandwich_norm": True,
    "num_kv_shared_layers": 2, "head_size": 99, "n_layer": 99, "layer_norm_eps": 0.5, "quantization": {"bits": 4},
    "my_own_residual_scale": 0.5, "hidden_activation": "gelu_pytorch_tanh", "attn_temperature_tuning": True,
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
    # Twice, or by the name that it had before.
    "gemma2": ("sliding_window_size", 11, 4096),
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
    "minimax_m2": {"attn_type_list": [1, 0], "qk_norm_type": "per_head", "shared_intermediate_size": 64},
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


# With these values the same features are switched off, or it's no feature at all: published configs carry such keys.
CHANGES_NOTHING = {
    "final_logit_softcapping": None, "query_pre_attn_scalar": 16, "attention_multiplier": 0.25, "logit_scale": 1.0,
    "embedding_multiplier": 1, "use_qk_norm": False, "no_rope_layers": [1, 1], "rope_interleaved": False,
    "use_mrope": False, "partial_rotary_factor": 1.0, "is_causal": True, "layer_types": ["full_attention"] * 2,
    "num_experts": 0, "vision_config": {}, "norm_type": "rmsnorm", "n_layer": 2, "layer_norm_eps": 1e-5,
    "_name_or_path": "a/b", "transformers_version": "4.40.0", "auto_map": {"AutoModelForCausalLM": "m.X"},
    "unsloth_version": "2025.1", "unsloth_fixed": True, "task_specific_params": {"a": 1}, "is_llama_config": True,
    "pretraining_tp": 8, "attention_dropout": 0.1, "max_window_layers": 28, "_attn_implementation": "sdpa",
    "temperature": 0.7, "top_k": 50, "do_sample": True, "max_sequence_length": 2048, "image_token_id": 7,
    "initializer_range": 0.5, "router_aux_loss_coef": 0.1, "use_flash_attn": True, "model_parallel_size": 8,
    "local_rank": 1, "global_step": 1000, "hidden_act": "swish", "my_companys_ticket": "A-17", "use_kv_cache": True,
}  # fmt: skip


@for_each(
    "changes",
    [
        *({key: value} for key, value in CHANGES_NOTHING.items()),
        {"sliding_window": 4096, "use_sliding_window": False},
        {"num_experts": 0, "num_experts_per_tok": 8, "norm_topk_prob": True},  # idle where there are none
    ],
)
def test_a_value_that_changes_nothing_and_bookkeeping_are_accepted(tmp_path, changes):
    assert read_config(change_config(tiny_model(tmp_path, "llama"), **changes))


def test_figures_of_rotary_positions_that_no_variant_has_are_refused(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
    idle = {"attn_factor": 1.0, "extrapolation_factor": 1.0, "finetuned": True, "alpha": None}
    assert read_config(tiny_model(tmp_path, "llama", rope=yarn | idle))
    for name, value in (("alpha", 1000.0), ("attn_factor", 2.0)):
        with pytest.raises(ConfigError, match=f"{name}={value} among the figures of rotary positions changes the ang"):
            read_config(tiny_model(tmp_path, "llama", rope=yarn | {name: value}))


# --- walks over transformers' classes ---------------------------------------------------------------------------------


def test_every_key_of_every_causal_model_of_transformers_has_a_row():
    """A key that a new transformers brings needs one: `worker/models/key_tables.py`."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    read = {key for family in TINY.values() for key in family} | {"rope_parameters"}
    unknown: dict[str, str] = {}
    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        kind = CONFIG_MAPPING[model_type]
        keys = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
        unknown |= {key: model_type for key in keys | set(kind.attribute_map) if not is_known(key) and key not in read}
    assert not unknown


def test_what_transformers_takes_for_parameters_of_generation_is_harmless():
    from transformers import GenerationConfig

    assert [key for key in GenerationConfig._get_default_generation_params() if not HARMLESS.fullmatch(key)] == []


def test_rows_of_families_belong_to_families():
    assert set(FAMILY_KEYS) <= {family.name for family in (*FAMILIES.values(), *VISION_FAMILIES.values())}


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


# --- architectures that aren't known ----------------------------------------------------------------------------------


@for_each(
    "config, words",
    [
        ({"architectures": ["LlamaForCausallM"]}, ["Did you mean LlamaForCausalLM?"]),
        ({"architectures": ["LLaMAForCausalLM"]}, ["Did you mean LlamaForCausalLM?"]),
        ({"architectures": ["Qwen4ForCausalLM"], "model_type": "qwen4"}, ["The nearest is Qwen"]),
        (
            {"architectures": ["Qwen3MambaForCausalLM"], "mamba_d_conv": 4, "linear_conv_kernel_dim": 4},
            ["The nearest is Qwen3", "mamba_d_conv", "use a model of that family"],
        ),
        ({"architectures": ["LlamaForSequenceClassification"]}, ["a classifier", "such as those of LlamaForCausalLM"]),
        ({"architectures": ["LlamaModel"]}, ["a model without a head"]),
        ({"architectures": ["BertForMaskedLM"]}, ["a model that doesn't continue texts"]),
        (
            {"architectures": ["Qwen2VisionForConditionalGeneration"], "vision_config": {"depth": 32}},
            ["a model that sees pictures", "Qwen2"],
        ),
        ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, ["a model with an encoder"]),
        ({"architectures": ["YiForCausalLM"], "model_type": "Yi"}, ["if it is the same model, write that name"]),
        ({"architectures": None, "model_type": "qwen3"}, ["By its model_type 'qwen3'", "Qwen3ForCausalLM"]),
        ({"architectures": []}, ["names the architecture none"]),
        # Nobody is told to write another name over that of a model that computes something else.
        *(
            ({"architectures": [f"{name}ForCausalLM"], "model_type": name.lower()}, ["use a model of that family"])
            for name in ("Olmo", "Exaone", "Phi3V", "Zamba2", "KimiLinear")
        ),
        ({"architectures": [7, None, "x" * 3000]}, ["names the architecture 7"]),
    ],
)  # fmt: skip
def test_an_unknown_architecture_is_refused_with_what_it_is_and_the_nearest(tmp_path, config, words):
    folder = change_config(tiny_model(tmp_path, "llama"), **({"model_type": None} | config))
    with pytest.raises(ConfigError) as refusal:
        read_config(folder)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.long
def test_no_model_that_transformers_has_a_class_for_is_to_get_the_name_of_another(tmp_path):
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    advised = []
    for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        with suppress(Exception):  # of classes that have no defaults
            config = AutoConfig.for_model(kind).to_dict() | {"architectures": [name]}
            (tmp_path / "config.json").write_text(json.dumps(config, default=str))
            try:
                read_config(tmp_path)
            except ConfigError as error:
                advised += [name] * ("write that name" in str(error))
    assert advised == []
