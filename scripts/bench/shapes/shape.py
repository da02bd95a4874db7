"""The shapes that `scripts/benchmark peers` compares: published ones, some with fewer layers, and every matrix in them.

A `Shape` is the model's own config.json, what its GGUF files say beside what all of them say, and how many layers were
cut away. `tensors` lists the matrices under GGUF's names; files are made of it, and from it follows what a token reads:
of the experts the chosen ones, of an embedding that isn't the output head as well next to nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from ..models import write_tokenizer

EMBEDDING, HEAD, VALUE, DOWN, LATENT, OTHER = "embedding", "head", "attention value", "down", "latent", "other"
DECAY = "decay"  # decides how a state changes: never quantized here
CONVOLUTION = "convolution"  # quantized nowhere
QUANTIZED = "quantization_config"
BESIDE_MXFP4 = {"mxfp4": "int8", "mxfp4_int4": "int4"}  # class -> what all but the experts become


@dataclass(frozen=True)
class Shape:
    """One shape. What its config calls differently in each family stands here under one name."""

    title: str
    published_layers: int
    config: dict[str, Any]  # of the shape that is measured
    architecture: str  # GGUF's name of it
    experts: int = 0  # 0: a dense model
    chosen: int = 0
    width: int = 0  # of an expert
    shared_width: int = 0  # of all shared experts together
    dense_layers: int = 0  # at the start
    layer_norms: tuple[str, ...] = ("attn_norm", "ffn_norm")
    norms: tuple[str, str, int, int] = ("attn_q_norm", "attn_k_norm", 0, 0)  # names and widths; 0: there are none
    has_biases: bool = False
    gates_attention: bool = False
    keys: dict[str, Any] = field(default_factory=dict)  # of GGUF, beside `common_keys`

    def cut(self, layers: int) -> "Shape":
        """The same with so many layers, whose kinds take turns as before."""
        config = self.config | {"num_hidden_layers": layers}
        if kinds := config.get("layer_types"):
            config["layer_types"] = [kinds[layer % len(kinds)] for layer in range(layers)]
        return replace(self, config=config)

    def in_class(self, quantization: str) -> "Shape":
        """The checkpoint from which that class can be made: experts in MXFP4 stay so, whatever is asked for."""
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

    @property
    def rope_theta(self) -> float:
        return self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]

    def keeps_states(self, layer: int) -> bool:
        return self.config.get("layer_types", {layer: None})[layer] == "linear_attention"


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


def write_config(folder: Path, model: Shape) -> None:
    """A checkpoint's folder without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    common = {"bos_token_id": 1, "eos_token_id": 2, "dtype": "bfloat16"}
    if "hidden_activation" not in model.config:
        common["hidden_act"] = "silu"
    (folder / "config.json").write_text(json.dumps(common | model.config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    write_tokenizer(folder, model.config["vocab_size"])


def common_keys(model: Shape) -> dict[str, Any]:
    config = model.config
    of_experts = {"expert_count": model.experts, "expert_used_count": model.chosen} if model.experts else {}
    return of_experts | {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "block_count": config["num_hidden_layers"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": model.head_size,
        "attention.value_length": model.head_size,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": model.rope_theta,
        "vocab_size": config["vocab_size"],
    }


def tensors(model: Shape) -> Iterator[Tensor]:
    """All of a model, layer by layer. Vectors have one dimension."""
    vocabulary, hidden = model.config["vocab_size"], model.config["hidden_size"]
    tied = model.config["tie_word_embeddings"]
    yield Tensor("token_embd.weight", (vocabulary, hidden), HEAD if tied else EMBEDDING, share=float(tied))
    for layer in range(model.layers):
        norms = [(name, (hidden,), OTHER, 1.0) for name in model.layer_norms]
        fed = dense(model) if layer < model.dense_layers or not model.experts else sparse(model)
        for name, shape, part, share in (*norms, *mixer(model, layer), *fed):
            suffix = "" if name.endswith((".bias", "ssm_a")) else ".weight"
            yield Tensor(f"blk.{layer}.{name}{suffix}", shape, part, layer, share)
    yield Tensor("output_norm.weight", (hidden,), OTHER)
    if not tied:
        yield Tensor("output.weight", (vocabulary, hidden), HEAD)


Part = tuple[str, tuple[int, ...], str, float]  # name, shape, part, share


def mixer(model: Shape, layer: int) -> Iterator[Part]:
    if model.keeps_states(layer):
        return delta_net(model)
    return latent_attention(model) if "kv_lora_rank" in model.config else attention(model)


def delta_net(model: Shape) -> Iterator[Part]:
    config, hidden = model.config, model.config["hidden_size"]
    heads = config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    yield "attn_qkv", (2 * keys + values, hidden), OTHER, 1.0
    yield "attn_gate", (values, hidden), OTHER, 1.0
    yield "ssm_conv1d", (2 * keys + values, config["linear_conv_kernel_dim"]), CONVOLUTION, 1.0
    yield "ssm_dt.bias", (heads,), OTHER, 1.0
    yield "ssm_a", (heads,), OTHER, 1.0
    yield "ssm_beta", (heads, hidden), DECAY, 1.0
    yield "ssm_alpha", (heads, hidden), DECAY, 1.0
    yield "ssm_norm", (config["linear_value_head_dim"],), OTHER, 1.0
    yield "ssm_out", (hidden, values), OTHER, 1.0


def attention(model: Shape) -> Iterator[Part]:
    config, hidden = model.config, model.config["hidden_size"]
    queries = config["num_attention_heads"] * model.head_size
    keys = config["num_key_value_heads"] * model.head_size
    rows = {
        "attn_q": (queries * (1 + model.gates_attention), hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
    }
    for name, shape in (rows | {"attn_output": (hidden, queries)}).items():
        yield name, shape, VALUE if name == "attn_v" else OTHER, 1.0
        if model.has_biases:
            yield f"{name}.bias", shape[:1], OTHER, 1.0
    query_norm, key_norm, query_width, key_width = model.norms
    if query_width:
        yield query_norm, (query_width,), OTHER, 1.0
        yield key_norm, (key_width,), OTHER, 1.0
    if model.has_biases:
        yield "attn_sinks", (config["num_attention_heads"],), OTHER, 1.0


def latent_attention(model: Shape) -> Iterator[Part]:
    config, hidden = model.config, model.config["hidden_size"]
    heads, rank, rotated = config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]
    yield "attn_q", (heads * (plain + rotated), hidden), OTHER, 1.0
    yield "attn_kv_a_mqa", (rank + rotated, hidden), OTHER, 1.0
    yield "attn_kv_a_norm", (rank,), OTHER, 1.0
    yield "attn_k_b", (heads, rank, plain), LATENT, 1.0
    yield "attn_v_b", (heads, value, rank), LATENT, 1.0
    yield "attn_output", (hidden, heads * value), OTHER, 1.0


def dense(model: Shape) -> Iterator[Part]:
    yield from gated("", (), model.config["intermediate_size"], model.config["hidden_size"], 1.0)


def sparse(model: Shape) -> Iterator[Part]:
    hidden, experts = model.config["hidden_size"], model.experts
    yield "ffn_gate_inp", (experts, hidden), OTHER, 1.0
    if model.architecture == "ernie4_5-moe":
        yield "exp_probs_b.bias", (experts,), OTHER, 1.0
    share = model.chosen / experts
    yield from gated("_exps", (experts,), model.width, hidden, share)
    if model.has_biases:
        yield "ffn_gate_inp.bias", (experts,), OTHER, 1.0
        for name, width in (("gate", model.width), ("up", model.width), ("down", hidden)):
            yield f"ffn_{name}_exps.bias", (experts, width), OTHER, share
    if model.shared_width:
        yield from gated("_shexp", (), model.shared_width, hidden, 1.0)


def gated(suffix: str, experts: tuple[int, ...], width: int, hidden: int, share: float) -> Iterator[Part]:
    yield f"ffn_gate{suffix}", (*experts, width, hidden), OTHER, share
    yield f"ffn_up{suffix}", (*experts, width, hidden), OTHER, share
    yield f"ffn_down{suffix}", (*experts, hidden, width), DOWN, share
