"""Mixtures of experts that `bench_experts.py` compares: published shapes with fewer layers, and every matrix in them.

A row is the model's own config.json, what its GGUF files say beside what all of them say, and how many layers were cut
away. `tensors` lists the matrices under GGUF's names; files are made of it, and from it follows what a token reads: of
the experts the chosen ones, of an embedding that isn't the output head as well next to nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from bench_models import write_tokenizer

EMBEDDING, HEAD, VALUE, DOWN, LATENT, OTHER = "embedding", "head", "attention value", "down", "latent", "other"
QUANTIZED = "quantization_config"
BESIDE_MXFP4 = {"mxfp4": "int8", "mxfp4_int4": "int4"}  # class -> what all but the experts become


@dataclass(frozen=True)
class Mixture:
    """One shape. What its config calls differently in each family stands here under one name."""

    title: str
    published_layers: int
    config: dict[str, Any]  # of the shape that is measured
    architecture: str  # GGUF's name of it
    experts: int
    chosen: int
    width: int  # of an expert
    shared_width: int = 0  # of all shared experts together
    dense_layers: int = 0  # at the start
    norms: tuple[str, str, int, int] = ("attn_q_norm", "attn_k_norm", 0, 0)  # names and widths; 0: there are none
    has_biases: bool = False
    keys: dict[str, Any] = field(default_factory=dict)  # of GGUF, beside `common_keys`

    def cut(self, layers: int) -> "Mixture":
        """The same with so many layers, whose kinds take turns as before."""
        config = self.config | {"num_hidden_layers": layers}
        if kinds := config.get("layer_types"):
            config["layer_types"] = [kinds[layer % len(kinds)] for layer in range(layers)]
        return replace(self, config=config)

    def in_class(self, quantization: str) -> "Mixture":
        """As a checkpoint of which that class can be made: experts in MXFP4 stay so, whatever is asked for."""
        if quantization in BESIDE_MXFP4:
            return self
        return replace(self, config={key: value for key, value in self.config.items() if key != QUANTIZED})

    @property
    def is_mxfp4(self) -> bool:
        return QUANTIZED in self.config

    @property
    def layers(self) -> int:
        return self.config["num_hidden_layers"]

    @property
    def head_size(self) -> int:
        return self.config.get("head_dim") or self.config["hidden_size"] // self.config["num_attention_heads"]


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]  # experts first, then outputs, then inputs
    part: str
    layer: int = 0
    share: float = 1.0  # of it, what one token reads

    @property
    def weights(self) -> int:
        return prod(self.shape)


MIXTURES = {
    "qwen3-30b": Mixture(
        "Qwen3-30B-A3B", 48,
        {
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
            "intermediate_size": 6144, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 4,
            "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
            "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151_936,
            "rope_theta": 1e6, "rms_norm_eps": 1e-6, "max_position_embeddings": 40_960, "tie_word_embeddings": False,
        },
        "qwen3moe", experts=128, chosen=8, width=768, norms=("attn_q_norm", "attn_k_norm", 128, 128),
        keys={"expert_feed_forward_length": 768},
    ),
    "olmoe": Mixture(
        "OLMoE-1B-7B", 16,
        {
            "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_size": 2048,
            "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
            "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False, "vocab_size": 50_304,
            "rope_theta": 10_000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
        },
        "olmoe", experts=64, chosen=8, width=1024, norms=("attn_q_norm", "attn_k_norm", 2048, 2048),
    ),
    "ernie-21b": Mixture(
        "ERNIE-4.5-21B-A3B", 28,
        {
            "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_size": 2560,
            "intermediate_size": 12_288, "num_hidden_layers": 8, "num_attention_heads": 20, "num_key_value_heads": 4,
            "head_dim": 128, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536,
            "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 1, "use_bias": False,
            "vocab_size": 103_424, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072,
            "tie_word_embeddings": True,
        },
        "ernie4_5-moe", experts=64, chosen=6, width=1536, shared_width=3072, dense_layers=1,
        keys={
            "expert_feed_forward_length": 1536, "expert_shared_feed_forward_length": 3072, "expert_shared_count": 2,
            "interleave_moe_layer_step": 1, "leading_dense_block_count": 1,
        },
    ),
    "gpt-oss-20b": Mixture(
        "gpt-oss-20b", 24,
        {
            "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880,
            "intermediate_size": 2880, "num_hidden_layers": 6, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "attention_bias": True,
            "sliding_window": 128, "vocab_size": 201_088, "rope_theta": 150_000.0, "rms_norm_eps": 1e-5,
            "layer_types": ["sliding_attention", "full_attention"] * 3, "swiglu_limit": 7.0,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": 4096,
            },
            "max_position_embeddings": 131_072, "tie_word_embeddings": False,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
                ],
            },
        },
        "gpt-oss", experts=32, chosen=4, width=2880, has_biases=True,
        keys={
            "expert_feed_forward_length": 2880, "attention.sliding_window": 128, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
        },
    ),
    "deepseek-v2-lite": Mixture(
        "DeepSeek-V2-Lite", 27,
        {
            "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
            "intermediate_size": 10_944, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 16,
            "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
            "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "norm_topk_prob": False,
            "routed_scaling_factor": 1.0, "topk_method": "greedy", "n_group": 1, "topk_group": 1,
            "vocab_size": 102_400, "rope_theta": 10_000.0, "rms_norm_eps": 1e-6,
            "rope_scaling": {
                "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
            },
            "max_position_embeddings": 163_840, "tie_word_embeddings": False,
        },
        "deepseek2", experts=64, chosen=6, width=1408, shared_width=2816, dense_layers=1,
        keys={
            "expert_feed_forward_length": 1408, "expert_shared_count": 2, "leading_dense_block_count": 1,
            "expert_weights_scale": 1.0, "expert_weights_norm": False, "expert_gating_func": 1,
            # Latents as one key and value for all heads, the form that it computes answers in.
            "attention.head_count_kv": 1, "attention.kv_lora_rank": 512, "attention.key_length": 576,
            "attention.value_length": 512, "attention.key_length_mla": 192, "attention.value_length_mla": 128,
            "attention.q_lora_rank": 0, "rope.dimension_count": 64, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 4096,
            "rope.scaling.yarn_log_multiplier": 0.0707,
        },
    ),
}  # fmt: skip


def write_config(folder: Path, mixture: Mixture) -> None:
    """A checkpoint's folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    common = {"hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(common | mixture.config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    write_tokenizer(folder, mixture.config["vocab_size"])


def common_keys(mixture: Mixture) -> dict[str, Any]:
    config = mixture.config
    return {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "block_count": config["num_hidden_layers"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": mixture.head_size,
        "attention.value_length": mixture.head_size,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
        "vocab_size": config["vocab_size"],
        "expert_count": mixture.experts,
        "expert_used_count": mixture.chosen,
    }


def tensors(mixture: Mixture) -> Iterator[Tensor]:
    """All of a model, layer by layer. Vectors have one dimension."""
    vocabulary, hidden = mixture.config["vocab_size"], mixture.config["hidden_size"]
    tied = mixture.config["tie_word_embeddings"]
    yield Tensor("token_embd.weight", (vocabulary, hidden), HEAD if tied else EMBEDDING, share=float(tied))
    for layer in range(mixture.layers):
        parts = latent_attention(mixture) if "kv_lora_rank" in mixture.config else attention(mixture)
        norms = [("attn_norm", (hidden,), OTHER, 1.0)]
        norms.append(("post_attention_norm" if mixture.has_biases else "ffn_norm", (hidden,), OTHER, 1.0))
        fed = dense(mixture) if layer < mixture.dense_layers else sparse(mixture)
        for name, shape, part, share in (*norms, *parts, *fed):
            suffix = "" if name.endswith(".bias") else ".weight"
            yield Tensor(f"blk.{layer}.{name}{suffix}", shape, part, layer, share)
    yield Tensor("output_norm.weight", (hidden,), OTHER)
    if not tied:
        yield Tensor("output.weight", (vocabulary, hidden), HEAD)


Part = tuple[str, tuple[int, ...], str, float]  # name, shape, part, share


def attention(mixture: Mixture) -> Iterator[Part]:
    config, hidden = mixture.config, mixture.config["hidden_size"]
    queries = config["num_attention_heads"] * mixture.head_size
    keys = config["num_key_value_heads"] * mixture.head_size
    rows = {"attn_q": (queries, hidden), "attn_k": (keys, hidden), "attn_v": (keys, hidden)}
    for name, shape in (rows | {"attn_output": (hidden, queries)}).items():
        yield name, shape, VALUE if name == "attn_v" else OTHER, 1.0
        if mixture.has_biases:
            yield f"{name}.bias", shape[:1], OTHER, 1.0
    query_norm, key_norm, query_width, key_width = mixture.norms
    if query_width:
        yield query_norm, (query_width,), OTHER, 1.0
        yield key_norm, (key_width,), OTHER, 1.0
    if mixture.has_biases:
        yield "attn_sinks", (config["num_attention_heads"],), OTHER, 1.0


def latent_attention(mixture: Mixture) -> Iterator[Part]:
    config, hidden = mixture.config, mixture.config["hidden_size"]
    heads, rank, rotated = config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]
    yield "attn_q", (heads * (plain + rotated), hidden), OTHER, 1.0
    yield "attn_kv_a_mqa", (rank + rotated, hidden), OTHER, 1.0
    yield "attn_kv_a_norm", (rank,), OTHER, 1.0
    yield "attn_k_b", (heads, rank, plain), LATENT, 1.0
    yield "attn_v_b", (heads, value, rank), LATENT, 1.0
    yield "attn_output", (hidden, heads * value), OTHER, 1.0


def dense(mixture: Mixture) -> Iterator[Part]:
    yield from gated("", (), mixture.config["intermediate_size"], mixture.config["hidden_size"], 1.0)


def sparse(mixture: Mixture) -> Iterator[Part]:
    hidden, experts = mixture.config["hidden_size"], mixture.experts
    yield "ffn_gate_inp", (experts, hidden), OTHER, 1.0
    if mixture.architecture == "ernie4_5-moe":
        yield "exp_probs_b.bias", (experts,), OTHER, 1.0
    share = mixture.chosen / experts
    yield from gated("_exps", (experts,), mixture.width, hidden, share)
    if mixture.has_biases:
        yield "ffn_gate_inp.bias", (experts,), OTHER, 1.0
        for name, width in (("gate", mixture.width), ("up", mixture.width), ("down", hidden)):
            yield f"ffn_{name}_exps.bias", (experts, width), OTHER, share
    if mixture.shared_width:
        yield from gated("_shexp", (), mixture.shared_width, hidden, 1.0)


def gated(suffix: str, experts: tuple[int, ...], width: int, hidden: int, share: float) -> Iterator[Part]:
    yield f"ffn_gate{suffix}", (*experts, width, hidden), OTHER, share
    yield f"ffn_up{suffix}", (*experts, width, hidden), OTHER, share
    yield f"ffn_down{suffix}", (*experts, hidden, width), DOWN, share
