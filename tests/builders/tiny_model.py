"""A small random checkpoint of any family, written in milliseconds and without torch.

`tiny_model(folder, "qwen3")` writes what a download would hold: config.json, safetensors, a byte-level tokenizer with
a chat template, and generation_config.json. The shapes are odd on purpose. The same arguments give the same bytes.
"""

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from .tiny_experts import expert_shapes

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
# Common pairs of the test texts, so that a word is fewer tokens than bytes and a token may end inside a character.
MERGES = (
    ("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "a"), ("i", "n"), ("r", "e"), ("o", "n"), ("Ġ", "s"), ("e", "r"),
    ("n", "d"), ("Ġa", "nd"), ("l", "l"), ("in", "g"), ("ä", "½"), ("å", "¥"), ("ð", "Ł"),
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_COMMON: dict[str, Any] = {
    "vocab_size": 307,
    "num_hidden_layers": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.02,
    "use_cache": True,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=48, intermediate_size=88,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
        attention_bias=False, mlp_bias=False,
    ),
    "mistral": dict(
        architectures=["MistralForCausalLM"], model_type="mistral", hidden_size=40, intermediate_size=72,
        num_attention_heads=5, num_key_value_heads=1, head_dim=16, sliding_window=None,
    ),
    "qwen2": dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=112, intermediate_size=100,
        num_attention_heads=7, num_key_value_heads=7, sliding_window=None, use_sliding_window=False,
        max_window_layers=2,
    ),
    "qwen3": dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=64, intermediate_size=112,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, attention_bias=False, sliding_window=None,
        use_sliding_window=False, max_window_layers=2, tie_word_embeddings=True,
    ),
    "ernie4_5": dict(
        architectures=["Ernie4_5ForCausalLM"], model_type="ernie4_5", hidden_size=48, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, use_bias=False, tie_word_embeddings=True,
    ),
    "mixtral": dict(
        architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=40, intermediate_size=56,
        num_attention_heads=5, num_key_value_heads=1, head_dim=16, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=None,
    ),
    "qwen2_moe": dict(
        architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", hidden_size=48, intermediate_size=72,
        num_attention_heads=6, num_key_value_heads=6, head_dim=16, moe_intermediate_size=20, num_experts=6,
        shared_expert_intermediate_size=52, num_experts_per_tok=3, norm_topk_prob=False, decoder_sparse_step=1,
        mlp_only_layers=[], qkv_bias=True, use_sliding_window=False, sliding_window=None, max_window_layers=2,
    ),
    "qwen3_moe": dict(
        architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=64, intermediate_size=112,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, attention_bias=False, moe_intermediate_size=36,
        num_experts=12, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        use_sliding_window=False, sliding_window=None, max_window_layers=2,
    ),
    "ernie4_5_moe": dict(
        architectures=["Ernie4_5_MoeForCausalLM"], model_type="ernie4_5_moe", hidden_size=48, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=3, head_dim=16, use_bias=False, tie_word_embeddings=True,
        moe_num_experts=10, moe_k=3, moe_intermediate_size=24, moe_num_shared_experts=2, moe_layer_start_index=1,
        moe_layer_end_index=-1, moe_layer_interval=1, moe_norm_min=1e-12,
    ),
    "olmoe": dict(
        architectures=["OlmoeForCausalLM"], model_type="olmoe", hidden_size=64, intermediate_size=28,
        num_attention_heads=4, num_key_value_heads=2, num_experts=9, num_experts_per_tok=4, norm_topk_prob=False,
        attention_bias=False, clip_qkv=None,
    ),
    "glm4_moe": dict(
        architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", hidden_size=48, intermediate_size=72,
        num_attention_heads=6, num_key_value_heads=3, head_dim=32, partial_rotary_factor=0.5, attention_bias=True,
        moe_intermediate_size=20, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, n_group=4,
        topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=True,
        num_nextn_predict_layers=1,
    ),
    "glm4_moe_lite": dict(
        architectures=["Glm4MoeLiteForCausalLM"], model_type="glm4_moe_lite", hidden_size=56, intermediate_size=80,
        num_attention_heads=5, num_key_value_heads=5, q_lora_rank=36, kv_lora_rank=48, qk_nope_head_dim=24,
        qk_rope_head_dim=16, v_head_dim=40, rope_interleave=True, attention_bias=False, first_k_dense_replace=1,
        moe_intermediate_size=28, n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=1, n_group=1,
        topk_group=1, routed_scaling_factor=1.8, norm_topk_prob=True, topk_method="noaux_tc", partial_rotary_factor=1.0,
        num_nextn_predict_layers=1, rms_norm_eps=1e-5,
    ),
    "dots1": dict(
        architectures=["Dots1ForCausalLM"], model_type="dots1", hidden_size=56, intermediate_size=76,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, attention_bias=False, moe_intermediate_size=20,
        n_routed_experts=10, n_shared_experts=2, num_experts_per_tok=3, n_group=1, topk_group=1,
        routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True, moe_layer_freq=1,
        scoring_func="noaux_tc", sliding_window=None, max_window_layers=2,
    ),
    "solar_open": dict(
        architectures=["SolarOpenForCausalLM"], model_type="solar_open", hidden_size=48, intermediate_size=72,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, attention_bias=False, moe_intermediate_size=28,
        n_routed_experts=9, n_shared_experts=1, num_experts_per_tok=4, n_group=1, topk_group=1,
        routed_scaling_factor=1.0, first_k_dense_replace=0, norm_topk_prob=True, partial_rotary_factor=1.0,
    ),
    "minimax_m2": dict(
        architectures=["MiniMaxM2ForCausalLM"], model_type="minimax_m2", hidden_size=56, intermediate_size=36,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, rotary_dim=16, num_local_experts=9,
        num_experts_per_tok=4, scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True,
        qk_norm_type="per_layer", attn_type_list=[1, 1], shared_intermediate_size=0, use_mtp=True, num_mtp_modules=3,
        mlp_intermediate_size=112, layernorm_mlp_beta=1.0,
    ),
    "hy_v3": dict(
        architectures=["HYV3ForCausalLM"], model_type="hy_v3", hidden_size=48, intermediate_size=68,
        num_attention_heads=5, num_key_value_heads=5, head_dim=16, attention_bias=False, mlp_bias=False,
        moe_intermediate_size=36, num_experts=11, num_experts_per_tok=4, num_shared_experts=1,
        router_scaling_factor=2.8, enable_moe_fp32_combine=True, mlp_layer_types=["dense", "sparse"],
        rms_norm_eps=1e-5,
    ),
    "deepseek_v2": dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", hidden_size=64, intermediate_size=96,
        num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=64, qk_nope_head_dim=32,
        qk_rope_head_dim=16, v_head_dim=24, attention_bias=False, first_k_dense_replace=1, moe_intermediate_size=20,
        n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, n_group=1, topk_group=1, topk_method="greedy",
        routed_scaling_factor=1.0, norm_topk_prob=False,
    ),
    "deepseek_v3": dict(
        architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", hidden_size=56, intermediate_size=88,
        num_attention_heads=6, num_key_value_heads=6, q_lora_rank=40, kv_lora_rank=80, qk_nope_head_dim=16,
        qk_rope_head_dim=32, v_head_dim=28, rope_interleave=True, attention_bias=False, first_k_dense_replace=1,
        moe_intermediate_size=24, n_routed_experts=12, num_experts_per_tok=4, n_shared_experts=1, n_group=4,
        topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True, num_nextn_predict_layers=1,
    ),
    "youtu": dict(
        architectures=["YoutuForCausalLM"], model_type="youtu", hidden_size=56, intermediate_size=96,
        num_attention_heads=6, num_key_value_heads=6, q_lora_rank=40, kv_lora_rank=48, qk_nope_head_dim=24,
        qk_rope_head_dim=16, v_head_dim=20, rope_interleave=True, attention_bias=False, tie_word_embeddings=True,
    ),
    "gpt_oss": dict(
        architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_size=96, intermediate_size=64,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, attention_bias=True,
        num_local_experts=6, num_experts_per_tok=3, sliding_window=13, swiglu_limit=0.8,
    ),
}  # fmt: skip
# The matrices that tools quantize: not routers (`gate`), nor the gate of an expert that all tokens share.
PROJECTION = re.compile(r"(_proj|_proj_with_mqa|\.w[123])\.weight$")
_STORED_AS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_THETA = {
    "hy_v3": 11_158_840.0, "minimax_m2": 5_000_000.0, "solar_open": 1_000_000.0, "ernie4_5": 500_000.0,
    "ernie4_5_moe": 500_000.0, "gpt_oss": 150_000.0, "mixtral": 1_000_000.0,
    "qwen3": 1_000_000.0,
}  # fmt: skip


def tiny_model(
    folder: Path,
    family: str,
    *,
    dtype: str = "float32",
    shards: int = 1,
    seed: int = 0,
    rope: dict[str, Any] | None = None,
    config_style: int = 5,
    adds_bos: bool | None = None,
    poison: int | None = None,
    **overrides: Any,
) -> Path:
    """Write a checkpoint of `family` into `folder`; `overrides` are keys of config.json, `rope` a variant's figures.

    `config_style` is the major version of transformers whose spelling config.json follows. `adds_bos` defaults to what
    the family's tokenizers do. The embedding of the token `poison` is NaN.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {**_COMMON, **FAMILIES[family], **overrides}
    written = {**config, **_spelled(family, dtype, rope or {}, config_style)}
    _write_json(folder / "config.json", written)
    _write_weights(folder, _shapes(family, config), dtype, shards, seed, poison)
    _write_tokenizer(folder, family in ("llama", "mistral") if adds_bos is None else adds_bos)
    ends = [config["eos_token_id"], SPECIAL_TOKENS.index("<|im_end|>")]
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": ends, "pad_token_id": 0})
    return folder


def _spelled(family: str, dtype: str, rope: dict[str, Any], config_style: int) -> dict[str, Any]:
    theta = _THETA.get(family, 10_000.0)
    if config_style == 4:
        return {"rope_theta": theta, "rope_scaling": rope or None, "torch_dtype": dtype}
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **rope}, "dtype": dtype}


def _shapes(family: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint."""
    hidden = config["hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for number in range(config["num_hidden_layers"]):
        layer = _layer_shapes(family, config, number)
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    if family == "ernie4_5_moe" and config["use_bias"]:  # tied or not
        shapes["lm_head.bias"] = (config["vocab_size"],)
    return shapes


def _layer_shapes(family: str, config: dict[str, Any], number: int) -> dict[str, tuple[int, ...]]:
    hidden = config["hidden_size"]
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    sparse = expert_shapes(config, number)
    for name, shape in projection_shapes(config).items():
        if sparse and name.startswith("mlp."):
            continue
        layer[f"{name}.weight"] = shape
        if _is_biased(family, config, name):
            layer[f"{name}.bias"] = shape[:1]
    if "kv_lora_rank" in config:
        layer["self_attn.kv_a_layernorm.weight"] = (config["kv_lora_rank"],)
        if config["q_lora_rank"]:
            layer["self_attn.q_a_layernorm.weight"] = (config["q_lora_rank"],)
    if family == "gpt_oss":
        layer["self_attn.sinks"] = (config["num_attention_heads"],)
    if family in ("olmoe", "minimax_m2"):  # a norm of all heads together
        layer |= {f"self_attn.{name}_norm.weight": layer[f"self_attn.{name}_proj.weight"][:1] for name in "qk"}
    elif family in ("qwen3", "qwen3_moe", "dots1", "hy_v3") or config.get("use_qk_norm"):
        layer |= dict.fromkeys(("self_attn.q_norm.weight", "self_attn.k_norm.weight"), (_head_dim(config),))
    return layer | sparse


def projection_shapes(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Of one layer: outputs, inputs."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    return {
        **(_latent_shapes(config) if "kv_lora_rank" in config else _attention_shapes(config)),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


def _attention_shapes(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    hidden = config["hidden_size"]
    query, shared = (config[heads] * _head_dim(config) for heads in ("num_attention_heads", "num_key_value_heads"))
    return {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (shared, hidden),
        "self_attn.v_proj": (shared, hidden),
        "self_attn.o_proj": (hidden, query),
    }


def _latent_shapes(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["q_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    queries = {"self_attn.q_proj": (heads * (nope + rope), hidden)}
    if rank:
        queries = {"self_attn.q_a_proj": (rank, hidden), "self_attn.q_b_proj": (heads * (nope + rope), rank)}
    return {
        **queries,
        "self_attn.kv_a_proj_with_mqa": (config["kv_lora_rank"] + rope, hidden),
        "self_attn.kv_b_proj": (heads * (nope + value), config["kv_lora_rank"]),
        "self_attn.o_proj": (hidden, heads * value),
    }


def _head_dim(config: dict[str, Any]) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def _is_biased(family: str, config: dict[str, Any], name: str) -> bool:
    if family == "qwen2" or (family == "qwen2_moe" and config["qkv_bias"]):
        return name.endswith(("q_proj", "k_proj", "v_proj"))
    if name.endswith(("q_b_proj", "kv_b_proj")) or (name.endswith("q_proj") and "kv_lora_rank" in config):
        return False
    if family in ("glm4_moe", "solar_open") and name.endswith("o_proj"):
        return False
    if name.startswith("self_attn"):
        return bool(config.get("attention_bias") or config.get("use_bias"))
    return bool(config.get("mlp_bias") or config.get("use_bias"))


def _values(name: str, shape: tuple[int, ...], seed: int) -> numpy.ndarray:
    """Large enough that the logits differ clearly, and every norm and bias matters."""
    draws = numpy.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape, dtype=numpy.float32)
    if name.endswith("norm.weight"):
        return 1 + draws / 5
    if name.endswith("sinks"):
        return draws * 2
    return draws / 5 if len(shape) == 1 else draws / numpy.sqrt(numpy.float32(shape[-1]))


def _stored(values: numpy.ndarray, dtype: str) -> bytes:
    if dtype == "bfloat16":
        bits = values.astype(numpy.float32).view(numpy.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes()  # nearest, ties to even
    return values.astype(dtype).tobytes()


def _write_weights(
    folder: Path, shapes: dict[str, tuple[int, ...]], dtype: str, shards: int, seed: int, poison: int | None
) -> None:
    names = list(shapes)
    files = ["model.safetensors"]
    if shards > 1:
        files = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    weight_map = {}
    for number, file in enumerate(files):
        own = names[number::shards]
        tensors = {name: _values(name, shapes[name], seed) for name in own}
        if poison is not None and "model.embed_tokens.weight" in tensors:
            tensors["model.embed_tokens.weight"][poison] = numpy.nan
        write_safetensors(folder / file, tensors, dtype)
        weight_map |= dict.fromkeys(own, file)
    if shards > 1:
        _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def write_safetensors(
    path: Path, tensors: dict[str, numpy.ndarray], dtype: str, form: str = "pt", label: str | None = None
) -> None:
    """The format by hand, because numpy has no bfloat16: header length, header, values. `label` is what the header
    calls the dtype, if not what it is."""
    header: dict[str, Any] = {"__metadata__": {"format": form}}
    values, end = [], 0
    for name, tensor in tensors.items():
        values.append(_stored(tensor, dtype))
        start, end = end, end + len(values[-1])
        header[name] = {"dtype": label or _STORED_AS[dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(values))


def _write_tokenizer(folder: Path, adds_bos: bool) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*SPECIAL_TOKENS, *alphabet, *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL_TOKENS])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "add_bos_token": adds_bos,
        "model_max_length": 1024,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
