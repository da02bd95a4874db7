"""The network: transformers' own Qwen3-VL, in a small shape, with pocket's tokens and those of pictures."""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl

from .sizes import FRAMES, LEAST_PIXELS, MERGE, MOST_PIXELS, PATCH

POCKET = Path(__file__).resolve().parents[3] / "frontend" / "pocket"
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TABLE_ROWS = 2112  # of the embedding table; the last of them stand for nothing
TEXT_SHAPE = {
    "hidden_size": 160, "intermediate_size": 320, "num_hidden_layers": 4, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 64, "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [12, 10, 10]},
}  # fmt: skip
VISION_SHAPE = {
    "hidden_size": 96, "intermediate_size": 288, "depth": 6, "num_heads": 3, "num_position_embeddings": 100,
    "deepstack_visual_indexes": [2],
}  # fmt: skip


def sight_tokenizer() -> Tokenizer:
    state = json.loads((POCKET / "tokenizer.json").read_text(encoding="utf-8"))
    first = max(added["id"] for added in state["added_tokens"] + [{"id": len(state["model"]["vocab"]) - 1}]) + 1
    for number, content in enumerate(VISION):
        added = {"id": first + number, "content": content, "special": True}
        state["added_tokens"].append(dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | added)
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def published_config(tokenizer: Tokenizer, text: dict[str, Any] | None = None) -> dict[str, Any]:
    """The config in the form of a published config.json."""
    ids = {name: tokenizer.token_to_id(f"<|{name}|>") for name in ("endoftext", "im_end")}
    text_config = {
        "model_type": "qwen3_vl_text", "vocab_size": TABLE_ROWS, **TEXT_SHAPE, **(text or {}), "hidden_act": "silu",
        "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "rms_norm_eps": 1e-06,
        "max_position_embeddings": 32768, "tie_word_embeddings": True, "use_cache": True, "dtype": "bfloat16",
        "bos_token_id": ids["endoftext"], "eos_token_id": ids["im_end"], "pad_token_id": ids["endoftext"],
    }  # fmt: skip
    vision_config = {
        "model_type": "qwen3_vl", **VISION_SHAPE, "out_hidden_size": text_config["hidden_size"],
        "hidden_act": "gelu_pytorch_tanh", "in_channels": 3, "initializer_range": 0.02, "patch_size": PATCH,
        "spatial_merge_size": MERGE, "temporal_patch_size": FRAMES,
    }  # fmt: skip
    pieces = {"image_token": "image_pad", "video_token": "video_pad", "vision_start_token": "vision_start",
              "vision_end_token": "vision_end"}  # fmt: skip
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        **{f"{name}_id": tokenizer.token_to_id(f"<|{piece}|>") for name, piece in pieces.items()},
        "tie_word_embeddings": True,
        "text_config": text_config,
        "vision_config": vision_config,
    }


def preprocessor_config() -> dict[str, Any]:
    return {
        "size": {"longest_edge": MOST_PIXELS, "shortest_edge": LEAST_PIXELS},
        "patch_size": PATCH,
        "temporal_patch_size": FRAMES,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }


def new_model(
    tokenizer: Tokenizer, replace: Callable[[type, str, Callable[..., Any]], None] = setattr
) -> Qwen3VLForConditionalGeneration:
    """A fresh model with attention written as products, whose gradient takes a fifth of the time of torch's own."""
    replace(qwen3_vl.Qwen3VLVisionAttention, "forward", attention_of_equal_sizes)
    replace(qwen3_vl.Qwen3VLVisionPatchEmbed, "forward", embedded_patches)
    AttentionInterface.register("products", text_attention)
    # The config asks for bfloat16, in which small steps would be lost.
    model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**published_config(tokenizer))).float()
    model.model.language_model.config._attn_implementation = "products"
    # As large as what patches begin with, or places would be learnt late.
    torch.nn.init.normal_(model.model.visual.pos_embed.weight, std=0.3)
    return model


def compile_small_operations(model: Qwen3VLForConditionalGeneration) -> None:
    """Norms, rotations and activations take as long as the products where each runs by itself."""
    for layer in model.model.language_model.layers:
        layer.compile(dynamic=True)
    for block in model.model.visual.blocks:
        block.mlp.compile(dynamic=True)
    qwen3_vl.apply_rotary_pos_emb_vision = torch.compile(qwen3_vl.apply_rotary_pos_emb_vision, dynamic=True)


def attention_of_equal_sizes(
    self: qwen3_vl.Qwen3VLVisionAttention,
    hidden_states: Tensor,
    cu_seqlens: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    **_: Any,
) -> Tensor:
    """The class's own attention, with neighbours of one size computed together instead of one after another."""
    q, k, v = self.qkv(hidden_states).unflatten(-1, (3, self.num_heads, -1)).unbind(1)  # [patches, heads, head_dim]
    q, k = qwen3_vl.apply_rotary_pos_emb_vision(q, k, *position_embeddings)
    mixed, start = [], 0
    for size, alike in groupby(cu_seqlens.diff().tolist()):
        end = start + size * len(list(alike))
        parts = (each[start:end].unflatten(0, (-1, size)).transpose(1, 2) for each in (q, k, v))
        mixed.append(attended(*parts, None, self.scaling).transpose(1, 2).flatten(2).flatten(0, 1))
        start = end
    return self.proj(torch.cat(mixed))


def text_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    key, value = (qwen3_vl.repeat_kv(each, module.num_key_value_groups) for each in (key, value))
    return attended(query, key, value, attention_mask, scaling).transpose(1, 2), None


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """softmax(scaling * q k^T + mask) v; all [rows, heads, tokens, head_dim], the mask [rows, 1, tokens, tokens]."""
    rows, heads, tokens, _ = q.shape
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    if mask is None:
        scores = scaling * q @ k.mT
    else:
        mask = mask.expand(rows, heads, tokens, tokens).reshape(rows * heads, tokens, tokens)
        scores = torch.baddbmm(mask, q, k.mT, alpha=scaling)
    return (_softmax(scores) @ v).unflatten(0, (rows, heads))


def _softmax(scores: Tensor) -> Tensor:
    # In bfloat16: autocast would make it float32, whose traffic costs more than the rest of attention.
    with torch.autocast("cpu", enabled=False):
        return scores.softmax(-1)


def embedded_patches(self: qwen3_vl.Qwen3VLVisionPatchEmbed, hidden_states: Tensor) -> Tensor:
    """The class's own convolution, whose windows never overlap, as a product."""
    return functional.linear(hidden_states, self.proj.weight.flatten(1), self.proj.bias)
