"""A config.json becomes a description, or an error that says what is wrong with it."""

import json
import math
from typing import Any

import pytest
from builders.cases import for_each
from builders.tiny_configs import ABSENT, change_config, described
from builders.tiny_model import tiny_model

from penstock.kernels.cpu.calls.states import WIDEST_CONVOLUTION
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.worker.description.config import read_config


@for_each("rope, context", [
    ({}, 1024),
    ({"rope_type": "linear", "factor": 4.0}, 4096),
    ({"rope_type": "dynamic", "factor": 2.0}, 2048),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048),
    ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, 1024),
])  # fmt: skip
def test_the_context_is_what_the_stretched_positions_reach(tmp_path, rope, context):
    stretched = read_config(tiny_model(tmp_path / "own", "qwen3", rope=rope))
    assert stretched.max_position == context
    if rope:  # as an option it is the same, whatever the model's own is
        for own in ({}, {"rope_type": "linear", "factor": 3.0}):
            given = read_config(tiny_model(tmp_path / str(len(own)), "qwen3", rope=own), rope_scaling=rope)
            [one], [other] = given.ropes.ropes, stretched.ropes.ropes
            assert (one.kind, one.max_position, one.theta) == (other.kind, other.max_position, other.theta)


def test_windows_follow_the_layers_that_have_one(tmp_path):
    options = {"num_hidden_layers": 4, "sliding_window": 7}
    mistral = read_config(tiny_model(tmp_path / "mistral", "mistral", **options))
    unused = read_config(tiny_model(tmp_path / "unused", "qwen2", **options | {"sliding_window": 0}))
    last = read_config(tiny_model(tmp_path / "last", "qwen2", use_sliding_window=True, max_window_layers=3, **options))
    kinds = ["sliding_attention", "full_attention"] * 2
    mixed = read_config(tiny_model(tmp_path / "mixed", "qwen3", use_sliding_window=True, layer_types=kinds, **options))
    assert mistral.windows == (7, 7, 7, 7)
    assert unused.windows == (None, None, None, None)
    assert last.windows == (None, None, None, 7)
    assert mixed.windows == (7, None, 7, None)


LINEAR = {"rope_type": "linear", "factor": 2.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
SENSELESS = {  # of each figure
    **{name: [0, -1.0, 0.5, math.nan, math.inf, 1e300, "2.0", True, []] for name in ("factor", "rope_theta")},
    **{
        name: [0, -1.0, math.nan, math.inf, 1e300, "2.0", True, []]
        for name in ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
    },
    **{name: [-1.0, math.nan, math.inf, "1", False] for name in ("mscale", "mscale_all_dim")},
    "original_max_position_embeddings": [0, -4, 0.5, 512.5, math.nan, "512", True],
    "truncate": ["no", 1, 0.0],
}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
COMMON = ("rope_theta", "original_max_position_embeddings")
FIGURES = [
    ({"rope_type": "default"}, COMMON),
    (LINEAR, (*COMMON, "factor")),
    (DYNAMIC, (*COMMON, "factor")),
    (LLAMA_3, (*COMMON, "factor", "low_freq_factor", "high_freq_factor")),
    (YARN, (*COMMON, "factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate")),
]


@for_each("rope, names", FIGURES, ids=[rope["rope_type"] for rope, _ in FIGURES])
def test_a_senseless_figure_of_rotary_positions_is_refused_with_its_name_and_value(tmp_path, rope, names):
    folder = tiny_model(tmp_path, "llama")
    for name in names:
        for value in (*SENSELESS[name], *([1, 1.0] if name == "rope_theta" else [])):
            with pytest.raises(ConfigError) as raised:
                read_config(change_config(folder, rope_parameters={"rope_theta": 1e4, **rope, name: value}))
            assert f"{name} must be " in str(raised.value), (name, value)
            assert f"is {value!r}." in str(raised.value), (name, value)


@for_each("rope, figures", [
    (YARN, {"factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}),  # DeepSeek-V3
    (YARN, {"factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0}),  # Kimi-K2
    (YARN, {"factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}),  # gpt-oss
    (YARN, {"attention_factor": None, "beta_fast": None, "truncate": None, "mscale": 0, "mscale_all_dim": 0}),
    (YARN, {"attention_factor": 1, "factor": 1.0, "type": "yarn", "low_freq_factor": "of another"}),
    (LLAMA_3, {"factor": 32.0, "original_max_position_embeddings": 8192, "rope_theta": None}),  # Llama 3.2
    (DYNAMIC, {"factor": 1, "original_max_position_embeddings": 512.0}),
    (LINEAR, {"beta_fast": 0, "mrope_section": [16, 24, 24]}),
])  # fmt: skip
def test_figures_that_are_published_are_taken(tmp_path, rope, figures):
    given = rope | figures
    read = read_config(change_config(tiny_model(tmp_path, "llama"), rope_parameters=given, rope_theta=1e4))
    assert read.ropes.ropes[0].factor == given["factor"]


@for_each("changes, sentence", [
    (
        {"rope_parameters": LLAMA_3 | {"high_freq_factor": 1.0}},
        "high_freq_factor must be above low_freq_factor, and is 1.0",
    ),
    ({"rope_parameters": YARN | {"beta_slow": 33}}, "beta_fast must not be below beta_slow, and is 32"),
    ({"rope_parameters": DYNAMIC, "head_dim": 2}, "heads of 2 of which 100% rotate"),
    ({"partial_rotary_factor": "half"}, "of which 'half' rotate"),
    ({"partial_rotary_factor": 0}, "of which 0 rotate"),
    ({"rope_theta": 1, "rope_parameters": None}, "rope_theta must be a number above 1, and is 1"),
    (
        {"architectures": ["MambaForCausalLM"]},
        r"MambaForCausalLM; it is not supported\. The nearest is .* Supported are those of Llama, .*Ernie4_5",
    ),
    ({"architectures": ABSENT}, "names the architecture none"),
    ({"hidden_size": None}, "hidden_size must be a positive whole number, and is None"),
    ({"max_position_embeddings": 0}, "max_position_embeddings must be a positive whole number, and is 0"),
    ({"num_key_value_heads": 4}, "6 attention heads can't share 4 key-value heads"),
    ({"hidden_act": "mish"}, "hidden_act='mish' is not supported"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings must be true or false, and is 'false'"),
    ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "rope type 'spiral' is not supported"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope type 'yarn' needs factor"),
    ({"rope_parameters": LINEAR | {"partial_rotary_factor": 0.5}}, "of which 50% rotate"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, r"differ by layer \(full_attention\)"),
    (MISTRAL | {"sliding_window": "8"}, "sliding_window must be a positive whole number, and is '8'"),
    (MISTRAL | {"sliding_window": 0}, "sliding_window must be a positive whole number, and is 0"),
    (MISTRAL | {"sliding_window": True}, "sliding_window must be a positive whole number, and is True"),
    (QWEN3 | {"use_sliding_window": "false"}, "use_sliding_window must be true or false, and is 'false'"),
    (QWEN3 | {"layer_types": ["full_attention"]}, "layer_types names 1 layers, and num_hidden_layers is 2"),
    (QWEN3 | {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types has 'chunked_attention'"),
])  # fmt: skip
def test_what_a_config_asks_for_and_cannot_have_is_named(tmp_path, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_config(change_config(tiny_model(tmp_path, "llama"), **changes))


UNLIKE_ANY_DEFAULT = {
    "vocab_size": 320, "num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 64, "num_key_value_heads": 4,
    "head_dim": 24, "rms_norm_eps": 3e-4, "max_position_embeddings": 600, "sliding_window": 11,
    "use_sliding_window": True, "max_window_layers": 1, "attention_bias": True, "mlp_bias": True, "use_bias": True,
    "rope": {"rope_type": "linear", "factor": 3.0, "rope_theta": 7e4},
}  # fmt: skip


# Of families that have something of their own; keys that go before those of its tiny config.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gemma4_text", {"num_kv_shared_layers": 7}, "must be a whole number below that of layers"),
    ("gemma4_text", {"num_kv_shared_layers": 5}, "none of the first 2 is of its kind"),
    ("gemma4_text", {"per_layer_config": {"9": {}}}, "the layers are 0 to 6"),
    ("gemma4_text", {"per_layer_config": {"2": {"sliding_window": 3}}}, "can't differ by layer"),
    ("gemma4_text", {"per_layer_config": {"0": {"num_key_value_heads": 3}}}, "4 attention heads can't share 3 key"),
    ("gemma4_text", {"vocab_size_per_layer_input": 300}, "300 of 307 tokens"),
    ("gemma4_text", {"use_bidirectional_attention": "all"}, "something else than 'vision'"),
    ("gemma4_text", {"enable_moe_block": True}, "num_experts must be a positive whole number"),
    ("youtu", {"num_key_value_heads": 2}, "num_key_value_heads is 2; with latent attention each of the 6"),
    ("youtu", {"rope_interleave": "yes"}, "rope_interleave must be true or false"),
    ("youtu", {"kv_lora_rank": 0}, "kv_lora_rank must be a positive whole number"),
    ("granite", {"logits_scaling": 0}, "logits_scaling"),
    ("granite", {"embedding_multiplier": "x"}, "embedding_multiplier"),
    ("cohere", {"logit_scale": None}, "logit_scale"),
    ("gemma2", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar"),
    ("gemma2", {"attn_logit_softcapping": 0}, "attn_logit_softcapping"),
    ("gemma2", {"hidden_activation": "mish"}, "hidden_activation"),
    ("jais2", {"hidden_act": ["relu2"]}, "hidden_act"),
    ("stablelm", {"use_parallel_residual": "true"}, "use_parallel_residual"),
    ("gemma3_text", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
    ("granitemoehybrid", {"layer_types": ["mamba", "attention"]}, "layer_types"),
    ("granitemoehybrid", {"num_local_experts": 8}, "num_local_experts"),
    ("qwen3_5_text", {"layer_types": ["mamba"] * 3}, "'mamba'"),
    ("qwen3_5_text", {"layer_types": ["full_attention"]}, "must name each of 3 layers"),
    ("qwen3_5_text", {"layer_types": ["linear_attention"] * 3}, "none of its layers"),
    ("qwen3_5_text", {"linear_num_key_heads": 7}, "4 value heads can't share 7 key heads"),
    ("qwen3_5_text", {"attn_output_gate": False}, "attn_output_gate"),
    ("qwen3_5_text", {"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1"),
    ("qwen3_5_text", {"linear_conv_kernel_dim": WIDEST_CONVOLUTION + 1}, "convolutions of 2 to 16 tokens"),
]


@for_each("family, changes, sentence", REFUSED)
def test_what_no_model_of_a_family_can_have_is_refused_by_name(tmp_path, family, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_config(change_config(tiny_model(tmp_path, family), **changes))


def check_defaults(folder, case: str) -> None:
    """Transformers' class writes down what it takes for a key that is missing."""
    from transformers import AutoConfig

    AutoConfig.from_pretrained(folder).save_pretrained(folder / "saved")
    assert described(read_config(folder)) == described(read_config(folder / "saved")), case


@for_each("style, tie", [(4, True), (5, False)])
@for_each("family", ["llama", "mistral", "qwen2", "qwen3", "ernie4_5"])
def test_a_key_that_is_missing_is_what_transformers_takes_for_it(tmp_path, family, tie, style):
    from transformers import AutoConfig

    known = AutoConfig.for_model(family).to_dict()
    keys = {key: value for key, value in UNLIKE_ANY_DEFAULT.items() if key in known or key == "rope"}
    folder = tiny_model(tmp_path, family, config_style=style, tie_word_embeddings=tie, **keys)
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    for key in (None, *(key for key in whole if key not in ("architectures", "model_type"))):
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != key}))
        check_defaults(folder, f"without {key}")
    path.write_text(json.dumps({key: whole[key] for key in ("architectures", "model_type")}))
    check_defaults(folder, "without any")


def test_a_folder_without_config_or_with_a_broken_one_is_named(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        read_config(tmp_path)
    for text, sentence in (("{", "is not valid JSON"), ("[]", "no JSON object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=sentence):
            read_config(tmp_path)
